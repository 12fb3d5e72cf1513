package config

import (
	"os"
	"slices"
	"time"
)

// tokensReader reads the tokens of a configuration again.
type tokensReader struct {
	opts Options
	// The configuration file as it was read last: its tokens, good or bad, and all problems.
	read     stamp
	tokens   []Token
	problems Problems
	// secrets holds the last secret of each file that a token names. It counts while the file cannot
	// be read.
	secrets map[string]string
}

// TokensReader returns a function that reads the tokens of a configuration again, which were read
// from opts. While the file of the configuration is as before, the function reads only the files
// that tokens name. It leaves out the tokens that cannot be used, and returns everything that is
// wrong with the configuration. The error is about a configuration whose tokens cannot be read at
// all. The function is for one goroutine.
func TokensReader(tokens []Token, opts Options) func() ([]Token, Problems, error) {
	r := &tokensReader{opts: opts, read: stampOf(opts.File), tokens: slices.Clone(tokens), secrets: map[string]string{}}
	for _, t := range tokens {
		r.secrets[t.TokenFile] = t.Token
	}
	return r.next
}

func (r *tokensReader) next() ([]Token, Problems, error) {
	// A problem may be about another file, whose changes this reader does not see.
	if now := stampOf(r.opts.File); now != r.read || len(r.problems) > 0 {
		cfg, problems := load(DefaultReplica(), r.opts)
		for _, p := range problems {
			if p.Path == "" || p.Path == "tokens" {
				return nil, nil, Problems{p}
			}
		}
		r.read, r.tokens, r.problems = now, cfg.Tokens, problems
	}
	good, problems := []Token(nil), slices.Clone(r.problems)
	secrets := make(map[string]string, len(r.secrets))
	for i, t := range r.tokens {
		at := element("tokens", i)
		slips := r.problems.within(at)
		if t.TokenFile != "" && len(slips) == 0 {
			t.Token = readToken(at+".token_file", t.TokenFile, &slips)
			problems = append(problems, slips...)
		}
		if Unreadable(slips) {
			t.Token, slips = r.secrets[t.TokenFile], nil
		}
		if len(slips) == 0 && t.Token != "" {
			good = append(good, t)
			secrets[t.TokenFile] = t.Token
		}
	}
	r.secrets = secrets
	return good, problems, nil
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
