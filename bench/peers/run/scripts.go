package main

import (
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var includeLine = regexp.MustCompile(`(?m)^ *-- include (\S+)$`)

// scriptNames are the names of the product's scripts by the hash under which Redis is asked for them.
func scriptNames(root string) (map[string]string, error) {
	folder := filepath.Join(root, "internal", "cell", "script")
	files, err := filepath.Glob(filepath.Join(folder, "*.lua"))
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, 2*len(files))
	for _, f := range files {
		text, err := withIncludes(folder, filepath.Base(f))
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(f), ".lua")
		for _, variant := range []string{text, strings.Replace(text, "'PUBLISH', channel, ", "'SPUBLISH', channel, ", 1)} {
			sum := sha1.Sum([]byte(variant)) //nolint:gosec // it is how Redis names scripts
			names[hex.EncodeToString(sum[:])] = name
		}
	}
	return names, nil
}

func withIncludes(folder, path string) (string, error) {
	data, err := os.ReadFile(filepath.Join(folder, path)) //nolint:gosec // of this repository
	if err != nil {
		return "", err
	}
	var failed error
	text := includeLine.ReplaceAllStringFunc(string(data), func(line string) string {
		part, err := withIncludes(folder, includeLine.FindStringSubmatch(line)[1])
		if err != nil {
			failed = err
		}
		return part
	})
	return text, failed
}
