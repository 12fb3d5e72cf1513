package heartbeat

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestExceeded(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, test := range map[string]struct {
		threshold     Threshold
		before, after any
		want          bool
	}{
		"absolute, below":               {Threshold{Absolute, 10}, 50.0, 59.9, false},
		"absolute, reached":             {Threshold{Absolute, 10}, 50.0, 60.0, true},
		"absolute, down":                {Threshold{Absolute, 10}, 50.0, 39.0, true},
		"absolute 0, equal":             {Threshold{Absolute, 0}, 5.0, 5.0, false},
		"absolute 0, changed":           {Threshold{Absolute, 0}, 5.0, 5.1, true},
		"absolute, integers":            {Threshold{Absolute, 2}, int64(4), int64(7), true},
		"absolute, mixed types":         {Threshold{Absolute, 2}, 4, 5.5, false},
		"percent, below":                {Threshold{Percent, 10}, 200.0, 219.0, false},
		"percent, reached":              {Threshold{Percent, 29}, 100.0, 129.0, true},
		"percent, of a negative":        {Threshold{Percent, 10}, -200.0, -220.0, true},
		"percent, from 0":               {Threshold{Percent, 1e9}, 0.0, 1e-9, true},
		"percent, stays 0":              {Threshold{Percent, 10}, 0, 0.0, false},
		"percent, to 0":                 {Threshold{Percent, 100}, 7.0, 0.0, true},
		"percent, to 0 below":           {Threshold{Percent, 101}, 7.0, 0.0, false},
		"any, equal":                    {Threshold{Any, 5}, "up", "up", false},
		"any, text":                     {Threshold{Any, 5}, "up", "down", true},
		"any, boolean":                  {Threshold{Any, 0}, true, false, true},
		"any, number, value not used":   {Threshold{Any, 5}, 1.0, 1.1, true},
		"any, number of another type":   {Threshold{Any, 0}, 1, 1.0, false},
		"any, integers beyond a double": {Threshold{Any, 0}, int64(1) << 53, int64(1)<<53 + 1, true},
		"text under absolute":           {Threshold{Absolute, 1e9}, "a", "b", true},
		"number becomes text":           {Threshold{Absolute, 1e9}, 1.0, "1", true},
		"text becomes boolean":          {Threshold{Any, 0}, "true", true, true},
		"number becomes NaN":            {Threshold{Absolute, 1e9}, 1.0, nan, true},
		"NaN becomes number":            {Threshold{Percent, 1e9}, nan, 1.0, true},
		"stays NaN":                     {Threshold{Any, 0}, nan, nan, false},
		"NaN becomes text":              {Threshold{Any, 0}, nan, "x", true},
		"to infinity":                   {Threshold{Absolute, 1e9}, 1.0, inf, true},
		"percent 0, from infinity":      {Threshold{Percent, 0}, inf, 1.0, true},
		"stays infinite":                {Threshold{Absolute, 0}, inf, inf, false},
		"no metric, twice":              {Threshold{Any, 0}, nil, nil, false},
		"no metric type":                {Threshold{Any, 0}, []int{1}, []int{1}, true},
	} {
		if got := test.threshold.exceeded(test.before, test.after); got != test.want {
			t.Errorf("%s: %v, expected %v", name, got, test.want)
		}
	}
}

func TestValidateNamesEverything(t *testing.T) {
	err := Policy{MetadataInterval: -1, MetadataGap: -1, Thresholds: map[string]Threshold{
		"memory.usage": {Kind: "relative"}, "cpu.usage": {Absolute, -1}, "disk.usage": {Percent, math.NaN()}, "health": {Kind: Any},
	}}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"heartbeat_interval is 0s", "metadata_interval is -1ns", "metadata_gap is -1ns",
		`change_thresholds.memory.usage has kind "relative", expected absolute, percent or any`,
		"change_thresholds.cpu.usage is -1, expected 0 or more", "change_thresholds.disk.usage is NaN",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "health") {
		t.Errorf("health is named in:\n%v", err)
	}
	if err := (Policy{HeartbeatInterval: time.Second}).Validate(); err != nil {
		t.Error(err)
	}
}
