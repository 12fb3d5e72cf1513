package measure

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRedisCost(t *testing.T) {
	t.Parallel()
	before, err := parseRedisStat("# CPU\r\nused_cpu_sys:99\r\nused_cpu_sys_main_thread:1.0\r\nused_cpu_user_main_thread:2.0\r\n" +
		"# Stats\r\ntotal_net_output_bytes:77\r\n# Commandstats\r\ncmdstat_evalsha:calls=10,usec=100,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if before.CPUSeconds != 3 || before.SentBytes != 77 {
		t.Errorf("%v s and %v bytes, expected 3 s and 77 bytes", before.CPUSeconds, before.SentBytes)
	}
	after, err := parseRedisStat("used_cpu_sys_main_thread:1.25\r\nused_cpu_user_main_thread:2.25\r\n" +
		"cmdstat_evalsha:calls=2010,usec=40100,usec_per_call=19.00\r\ncmdstat_xread:calls=500,usec=1000\r\n" +
		"cmdstat_client|setinfo:calls=1,usec=1\r\n")
	if err != nil {
		t.Fatal(err)
	}
	want := RedisCost{CPUPerJob: 500, ScriptPerJob: 40, ReadPerJob: 1}
	if diff := cmp.Diff(want, after.Cost(before, 1000)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(RedisCost{}, after.Cost(before, 0)); diff != "" {
		t.Errorf("without jobs: %s", diff)
	}
	if _, err := parseRedisStat("cmdstat_get:calls=x,usec=1\r\n"); err == nil {
		t.Error("a figure that is none was accepted")
	}
}
