//go:build !windows

#include "textflag.h"

// filter is called by C (AAPCS64): R0 is the tensor, R1 whether this is the question
// (1) or the data (0), R2 the Filter. It uses no stack and no register that the
// caller keeps.
//
//	bool filter(struct ggml_tensor * t, bool ask, void * user)
TEXT ·filter(SB), NOSPLIT|NOFRAME, $0
	MOVWU 8(R2), R3             // Filter.pass
	CMPW  $2, R3                // PassAll
	BEQ   pass
	TSTW  $0xff, R1
	BEQ   pass
	CBZW  R3, no                // PassNothing
	MOVD  256(R0), R4
	MOVD  $0x5f656f6d5f6e6666, R5 // "ffn_moe_"
	CMP   R5, R4
	BNE   no
	MOVD  264(R0), R4
	MOVD  $0x2d73746867696577, R5 // "weights-"
	CMP   R5, R4
	BNE   no
	MOVD  160(R0), R4           // of a reshaped one the second source is missing
	CBZ   R4, no
	MOVD  $1, R0
	RET
no:
	MOVD  ZR, R0
	RET
pass:
	MOVD  0(R2), R3             // Filter.callback
	JMP   (R3)

// func filterEntry() uintptr
TEXT ·filterEntry(SB), NOSPLIT, $0-8
	MOVD  $·filter(SB), R0
	MOVD  R0, ret+0(FP)
	RET
