package discover

// role is what a tensor does in an expert.
type role uint8

// The roles, in the order in which a layer consumes them.
const (
	gate role = iota
	up
	gateUp
	down
	roles
)

var roleNames = [roles]string{"gate", "up", "gate_up", "down"}

func (r role) String() string { return roleNames[r] }

// layerWords come before a block's number; aheadWords mark what predicts further
// tokens, and may come before a number as well.
var layerWords = set("layers", "layer", "blocks", "block", "blk", "h", "decoder_layer")

var aheadWords = set("mtp", "mtp_layers", "mtp_block", "mtp_blocks", "mtp_modules", "nextn",
	"mtp_linear_proj", "mtp_emb_norm", "mtp_hidden_norm")

// aheadMarks are tensors that only blocks ahead have.
var aheadMarks = set("eh_proj", "enorm", "hnorm", "shared_head", "nextn", "mtp")

// projections are the names of an expert's weights in most published models.
var projections = map[string]role{
	"gate_proj": gate, "w1": gate, "gate": gate,
	"up_proj": up, "w3": up, "up": up, "fc1": up,
	"down_proj": down, "w2": down, "down": down, "fc2": down,
	"gate_up_proj": gateUp, "gate_up": gateUp,
	"gate_up_projs": gateUp, "down_projs": down,
}

// Names of few models: Step-3.5's stacked matrices, Grok-1's, DBRX's flattened
// ones, and those of GPT-OSS as first published, of Granite and JetMoE.
var (
	stepProjections    = map[string]role{"gate_proj": gate, "up_proj": up, "down_proj": down}
	grokProjections    = map[string]role{"linear": gate, "linear_v": up, "linear_1": down}
	flatProjections    = map[string]role{"w1": gate, "v1": up, "w2": down}
	mlpProjections     = map[string]role{"mlp1_weight": gateUp, "mlp1": gateUp, "mlp2_weight": down, "mlp2": down}
	graniteProjections = map[string]role{"input_linear": gateUp, "output_linear": down}
)

// mains are the endings of the weights themselves, "" included.
var mains = set("", "weight", "weight_packed", "qweight", "blocks")

// sides are the endings of side tensors, in the order in which records hold them.
var sides = []string{
	"bias", "scale", "input_scale", "scales", "biases",
	"weight_scale_inv", "weight_scale", "weight_scale_2", "weight_global_scale", "scale_inv",
	"weight_zero_point", "weight_shape", "weight_g_idx", "qzeros", "g_idx",
	"input_global_scale", "input_zero_point", "activation_scale", "pre_quant_scale",
	"qscale_weight", "qscale_act", "weight.SCB", "SCB",
	"weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map",
	"weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4",
}

// sideOf is an ending's place in sides, counted from 1.
var sideOf = func() map[string]uint8 {
	m := make(map[string]uint8, len(sides))
	for i, s := range sides {
		m[s] = uint8(i + 1)
	}
	return m
}()

// Names of what is no routed expert.
var (
	sharedWords    = set("shared_experts", "shared_expert", "share_expert", "shared_mlp", "shared_expert_gate")
	attentionWords = set("self_attn", "self_attention", "attention", "attn")
	// containers hold a block's router, or nothing does.
	containers  = set("mlp", "block_sparse_moe", "ffn", "feed_forward", "moe", "mixer")
	routerWords = set("gate", "router", "primary_router", "moe_statics")
)

// routerTensors are the names of a router's tensors after the container.
var routerTensors = map[string]class{
	"gate.weight": router, "router.weight": router, "router.layer.weight": router,
	"gate.wg.weight": router, "primary_router.weight": router, "router.gate.weight": router,
	"router.classifier.weight": router, "router.proj.weight": router,

	"gate.bias": routerBias, "router.bias": routerBias, "router.layer.bias": routerBias,
	"router.classifier.bias": routerBias,

	"gate.e_score_correction_bias": selection, "e_score_correction_bias": selection,
	"moe_statics.e_score_correction_bias": selection, "expert_bias": selection,
	"gate.expert_bias": selection, "router.expert_bias": selection, "router_bias": selection,
	"experts.e_score_correction_bias": selection, "router.e_score_correction_bias": selection,

	"gate.tid2eid": hashTable,
	"router.scale": routerScale,
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}
