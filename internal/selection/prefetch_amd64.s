#include "textflag.h"

// func prefetch(p, q **Node, a, b *Node)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ p+0(FP), AX
	MOVQ q+8(FP), BX
	MOVQ a+16(FP), CX
	MOVQ b+24(FP), DX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	PREFETCHT0 (CX)
	PREFETCHT0 (DX)
	RET
