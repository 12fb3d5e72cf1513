package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

const (
	tokenIssuer   = "https://id.example.com"
	tokenAudience = "freeslot"
	freeTenant    = "free"
	boundTenant   = "bound" // has quotas
)

// submitLine is one line of the table: a kind of token, and a tenant with or without quotas.
type submitLine struct {
	name, token  string
	client       *client.Client
	http, socket []float64 // microseconds of CPU of a submit, by round
}

// runTokens submits with each kind of token in turns, by HTTP and over the WebSocket.
func runTokens(ctx context.Context, b *tool.Bench) {
	rounds, block := tool.Sized(b, 200, 2), tool.Sized(b, 20, 5)
	b.Say("One replica in this process, a worker that takes every job at once; a tokens_file of 10,000 lines; keys "+
		"from jwks_file; "+
		"the tenant bound has max_kinds, max_priority and max_schedules. "+
		"%d rounds of %d submits for each line and way, one after another, in turns. Processor time of "+
		"this process, so of replica, client and worker: medians over the rounds, and the median of each round's ratio to the first.", rounds, block)
	folder := tool.Must(os.MkdirTemp("", "freeslot-tokens"))
	defer func() { _ = os.RemoveAll(folder) }()
	cfg, lines := tokensOf(folder)
	redis := b.StartRedis(ctx)
	defer tool.End(redis.Stop)
	cfg.Redis.URL = redis.URL()
	r := replica.New(cfg, zap.NewNop(), prometheus.NewRegistry())
	w := tool.Must(worker.New(worker.Config{RedisURL: redis.URL(), Node: freeslot.Node{ID: "node-1", MaxConcurrency: 64}}))
	w.Handle(benchService, func(context.Context, *worker.Job) (any, error) { return nil, nil })
	tool.Check(w.Start(ctx))
	defer tool.End(func() error { return w.Stop(ctx) })
	tool.Check(r.Start(ctx))
	defer tool.End(func() error { return r.Stop(ctx) })
	for _, l := range lines {
		l.client = tool.Must(client.Dial(ctx, "ws://"+r.Addr(), client.Options{Token: l.token}))
		defer tool.End(l.client.Close)
	}
	for round := range rounds + 1 {
		for _, l := range lines {
			byHTTP := timed(block, func() { submitHTTP(ctx, r.Addr(), l.token) })
			bySocket := timed(block, func() { tool.Must(l.client.Submit(ctx, freeslot.Job{Service: benchService})) })
			if round > 0 { // the first one warms up
				l.http, l.socket = append(l.http, byHTTP), append(l.socket, bySocket)
			}
		}
	}
	t := result.NewTable("Token, tenant", "CPU by HTTP [us]", "ratio", "CPU by WebSocket [us]", "ratio")
	worst := 0.0
	for _, l := range lines {
		http, socket := ratio(l.http, lines[0].http), ratio(l.socket, lines[0].socket)
		t.Add(l.name, measure.Median(l.http), http, measure.Median(l.socket), socket)
		worst = max(worst, 100*(http-1), 100*(socket-1))
	}
	b.Result.Tables = []result.Table{t}
	b.Target("a submit with quotas, hashed and signed tokens, beyond one with an inline token and without quotas",
		result.Percent, result.AtMost, 2, worst)
}

// timed returns the microseconds of processor time that this process spends on one call, as the
// mean of some. The clock would also count whatever else the machine does.
func timed(calls int, f func()) float64 {
	begin := processTime()
	for range calls {
		f()
	}
	return float64((processTime() - begin).Nanoseconds()) / 1000 / float64(calls)
}

func processTime() time.Duration {
	var used syscall.Rusage
	tool.Check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// ratio returns the median of the ratios of rounds.
func ratio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return measure.Median(ratios)
}

func submitHTTP(ctx context.Context, addr, token string) {
	body := bytes.NewReader([]byte(`{"service":"` + benchService + `"}`))
	req := tool.Must(http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/jobs", body))
	req.Header.Set("Authorization", "Bearer "+token)
	resp := tool.Must(http.DefaultClient.Do(req))
	text := tool.Must(io.ReadAll(resp.Body))
	tool.Check(resp.Body.Close())
	if resp.StatusCode >= http.StatusMultipleChoices {
		tool.Check(fmt.Errorf("submit: %s %s", resp.Status, text))
	}
}

// tokensOf returns a configuration with all kinds of tokens, and a line for each kind and tenant.
func tokensOf(folder string) (cfg config.Replica, lines []*submitLine) {
	cfg = config.DefaultReplica()
	cfg.Listen, cfg.Lists.Dir = "127.0.0.1:0", folder
	cfg.TokensFile = filepath.Join(folder, "tokens.yaml")
	priority := 9
	cfg.Tenants = map[string]config.Tenant{boundTenant: {MaxKinds: 64, MaxPriority: &priority, MaxSchedules: 100}}
	key := tool.Must(rsa.GenerateKey(rand.Reader, 2048))
	cfg.Auth.OIDC.Issuer, cfg.Auth.OIDC.Audience = tokenIssuer, tokenAudience
	cfg.Auth.OIDC.Roles = map[string]identity.Role{"devs": identity.Client}
	cfg.Auth.OIDC.JWKSFile = filepath.Join(folder, "jwks.json")
	tool.Check(os.WriteFile(cfg.Auth.OIDC.JWKSFile, []byte(fmt.Sprintf(
		`{"keys":[{"kty":"RSA","alg":"RS256","use":"sig","kid":"1","n":%q,"e":"AQAB"}]}`, encode(key.N.Bytes()),
	)), 0o600))
	var file bytes.Buffer
	add := func(kind, tenant, token string) {
		lines = append(lines, &submitLine{name: kind + ", tenant " + tenant, token: token})
	}
	for _, tenant := range []string{freeTenant, boundTenant} {
		inline := "inline-token-of-" + tenant
		cfg.Tokens = append(cfg.Tokens, config.Token{Token: inline, Tenant: tenant, Role: identity.Client})
		add("inline", tenant, inline)
		secret := ""
		for i := range 5_000 {
			var line string
			var err error
			secret, line, err = identity.NewToken(identity.Principal{
				Name: tenant + "-" + strconv.Itoa(i), Tenant: tenant, Role: identity.Client,
			})
			tool.Check(err)
			file.WriteString(line + "\n")
		}
		add("hashed", tenant, secret)
		add("signed", tenant, sign(key, tenant))
	}
	tool.Check(os.WriteFile(cfg.TokensFile, file.Bytes(), 0o600))
	return cfg, lines
}

func sign(key *rsa.PrivateKey, tenant string) string {
	claims := tool.Must(json.Marshal(map[string]any{
		"iss": tokenIssuer, "aud": tokenAudience, "sub": "bench", "tenant": tenant, "role": "devs",
		"exp": time.Now().Add(24 * time.Hour).Unix(),
	}))
	text := encode([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))
	return text + "." + encode(tool.Must(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])))
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
