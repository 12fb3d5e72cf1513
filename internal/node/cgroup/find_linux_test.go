package cgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mounts, self string
		v2           string
		v1           map[string]string
	}{
		"v2": {
			mounts: "24 1 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n25 1 0:23 / /proc rw - proc proc rw\n",
			self:   "0::/system.slice/nodeagent.service\n", v2: "/sys/fs/cgroup/system.slice/nodeagent.service",
		},
		"container with a namespace": {
			mounts: "24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n", self: "0::/\n", v2: "/sys/fs/cgroup",
		},
		"container that sees its own part": {
			mounts: "24 1 0:22 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			self:   "5:memory:/docker/abc/x\n0::/docker/abc\n", v1: map[string]string{"memory": "/sys/fs/cgroup/memory/x"},
		},
		"outside of what is mounted": {
			mounts: "24 1 0:22 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n24 1 0:22 / /cg rw - cgroup2 cgroup rw\n",
			self:   "5:memory:/docker/ab\n0::/../other\n",
		},
		"several": {
			mounts: "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n35 31 0:32 / /sys/fs/my\\040cgroup rw - cgroup cgroup rw,memory\n" +
				"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			self: "9:name=systemd:/s\n4:memory:/m\n1:cpu,cpuacct:/c\n0::/u\nnonsense\n", v2: "/sys/fs/cgroup/unified/u",
			v1: map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct/c", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/c", "memory": "/sys/fs/my cgroup/m", "name=systemd": "/sys/fs/cgroup/systemd/s"},
		},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := locate(test.mounts, test.self)
			if got.v2 != test.v2 {
				t.Errorf("%+v, expected %s", got, test.v2)
			}
			if test.v1 == nil {
				test.v1 = map[string]string{}
			}
			if diff := cmp.Diff(test.v1, got.v1); diff != "" {
				t.Error(diff)
			}
		})
	}
}
