package events

import "testing"

var sinkBytes []byte

func BenchmarkAppend(b *testing.B) {
	for _, tt := range wire {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sinkBytes = tt.event.Append(sinkBytes[:0])
			}
		})
	}
}
