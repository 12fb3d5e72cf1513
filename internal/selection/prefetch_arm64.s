#include "textflag.h"

// func prefetch(p, q **Node, a, b *Node)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	LDP p+0(FP), (R0, R1)
	LDP a+16(FP), (R2, R3)
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	PRFM (R2), PLDL1KEEP
	PRFM (R3), PLDL1KEEP
	RET
