package main

import redisclient "github.com/freeslot/freeslot/internal/redis/client"

// redisFlags are the flags of commands that connect to Redis by themselves.
type redisFlags struct {
	RedisURL                  []string `default:"redis://127.0.0.1:6379" env:"FREESLOT_REDIS__URL" sep:"none" placeholder:"URL" help:"Redis (default ${default}); once for each server, in the order of redis.urls."`
	RedisUsername             string   `env:"FREESLOT_REDIS__USERNAME" placeholder:"NAME" help:"User of Redis to connect as."`
	RedisPasswordFile         string   `env:"FREESLOT_REDIS__PASSWORD_FILE" placeholder:"FILE" help:"File that holds that user's password."`
	RedisSentinelUsername     string   `env:"FREESLOT_REDIS__SENTINEL_USERNAME" placeholder:"NAME" help:"User of the sentinels."`
	RedisSentinelPasswordFile string   `env:"FREESLOT_REDIS__SENTINEL_PASSWORD_FILE" placeholder:"FILE" help:"File that holds that user's password."`
	RedisCAFile               string   `name:"redis-ca-file" env:"FREESLOT_REDIS__TLS__CA_FILE" placeholder:"FILE" help:"Certificates (PEM) that may sign the certificates of rediss:// servers, instead of the system's."`
	RedisCertFile             string   `env:"FREESLOT_REDIS__TLS__CERT_FILE" placeholder:"FILE" help:"Our certificate (PEM), for servers that ask for one."`
	RedisKeyFile              string   `env:"FREESLOT_REDIS__TLS__KEY_FILE" placeholder:"FILE" help:"Its key (PEM)."`
	RedisServerName           string   `env:"FREESLOT_REDIS__TLS__SERVER_NAME" placeholder:"NAME" help:"Name in the servers' certificates, if it is not the URL's host."`
}

// lockPrefix is the flag of commands that take locks, or give the right to take them.
type lockPrefix struct {
	LockKeyPrefix string `default:"lock" env:"FREESLOT_LOCKS__KEY_PREFIX" placeholder:"PREFIX" help:"First part of the keys of locks (default ${default})."`
}

func (f *redisFlags) config() redisclient.Config {
	return redisclient.Config{
		URLs: f.RedisURL, Name: "schedctl",
		Access: redisclient.Access{
			Username: f.RedisUsername, PasswordFile: f.RedisPasswordFile,
			SentinelUsername: f.RedisSentinelUsername, SentinelPasswordFile: f.RedisSentinelPasswordFile,
			TLS: redisclient.TLS{
				CAFile: f.RedisCAFile, CertFile: f.RedisCertFile, KeyFile: f.RedisKeyFile, ServerName: f.RedisServerName,
			},
		},
	}
}
