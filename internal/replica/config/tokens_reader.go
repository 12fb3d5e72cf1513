package config

import (
	"os"
	"slices"
	"time"
)

// TokensReader returns a function that reads the tokens of a configuration again, which were read
// from opts. While the file of the configuration is as before, it reads only the files that tokens
// name. The function is for one goroutine.
func TokensReader(tokens []Token, opts Options) func() ([]Token, error) {
	tokens, read := slices.Clone(tokens), stampOf(opts.File)
	return func() ([]Token, error) {
		if now := stampOf(opts.File); now != read {
			fresh, err := LoadReplica(opts)
			if err != nil {
				return nil, err
			}
			tokens, read = fresh.Tokens, now
		}
		var problems Problems
		all := make([]Token, len(tokens))
		for i, t := range tokens {
			if t.TokenFile != "" {
				t.Token = readToken(element("tokens", i)+".token_file", t.TokenFile, &problems)
			}
			all[i] = t
		}
		if len(problems) > 0 {
			return nil, problems
		}
		return all, nil
	}
}

// stamp changes when a file does.
type stamp struct {
	at   time.Time
	size int64
}

func stampOf(name string) stamp {
	if info, err := os.Stat(name); err == nil {
		return stamp{info.ModTime(), info.Size()}
	}
	return stamp{}
}
