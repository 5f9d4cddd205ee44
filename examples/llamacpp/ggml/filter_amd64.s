//go:build !windows

#include "textflag.h"

// filter is called by C (System V): DI is the tensor, SI whether this is the question
// (1) or the data (0), DX the Filter. It uses no stack and no register that the
// caller keeps.
//
//	bool filter(struct ggml_tensor * t, bool ask, void * user)
TEXT ·filter(SB), NOSPLIT|NOFRAME, $0
	MOVL  8(DX), CX             // Filter.pass
	CMPL  CX, $2                // PassAll
	JEQ   pass
	TESTB SI, SI
	JEQ   pass
	XORL  AX, AX
	TESTL CX, CX                // PassNothing
	JEQ   done
	MOVQ  $0x5f656f6d5f6e6666, CX // "ffn_moe_"
	CMPQ  256(DI), CX
	JNE   done
	MOVQ  $0x2d73746867696577, CX // "weights-"
	CMPQ  264(DI), CX
	JNE   done
	CMPQ  160(DI), $0           // of a reshaped one the second source is missing
	JEQ   done
	MOVL  $1, AX
done:
	RET
pass:
	MOVQ  0(DX), AX             // Filter.callback
	JMP   AX

// func filterEntry() uintptr
TEXT ·filterEntry(SB), NOSPLIT, $0-8
	LEAQ  ·filter(SB), AX
	MOVQ  AX, ret+0(FP)
	RET
