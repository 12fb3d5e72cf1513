package config

import (
	"regexp"
	"strings"
)

var listIndex = regexp.MustCompile(`\[\d+\]`)

// suggest is ", did you mean …?" with the known key nearest to an unknown path,
// or empty when none is near.
func suggest(path string, known []Key) string {
	path = listIndex.ReplaceAllString(path, "[]")
	paths := make([]string, 0, len(known))
	for _, k := range known {
		paths = append(paths, k.Path)
	}
	return nearest(path, paths, func(k string) int {
		d := distance(fold(path), fold(k))
		if lastName(path) == lastName(k) {
			// The right name in the wrong section is a nearer miss than any slip of the pen.
			return min(d, 1)
		}
		if section(path) == section(k) {
			return min(d, distance(lastName(path), lastName(k)))
		}
		return d
	})
}

// Suggest is ", did you mean …?" with the known name nearest to an unknown one, such as that of a flag, or empty.
func Suggest(name string, known []string) string {
	return nearest(name, known, func(k string) int { return distance(fold(name), fold(k)) })
}

func nearest(name string, known []string, far func(known string) int) string {
	best, bestDistance := "", 1+max(2, len(name)/4)
	for _, k := range known {
		if d := far(k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// fold makes redis_url, redis-url and redis.url equal.
func fold(path string) string {
	return strings.NewReplacer(".", "_", "-", "_").Replace(strings.ToLower(path))
}

func lastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func section(path string) string { return strings.TrimSuffix(path, lastName(path)) }

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
