package importer

import "outrider/layout"

// expertMap turns the numbers of slots (physical experts, of which an expert that is
// used much may have several) into those of experts. Rows are layers.
type expertMap struct {
	layers, slots int
	experts       int
	of            []int32 // nil: the same numbers
	there         bool    // the dump has a map
}

// expertMap reads last_physical_to_logical_map [layers, slots], the map at the
// time of the dump; it may have been another one while passes were recorded.
func (d *sglangDump) expertMap() (*expertMap, error) {
	if v, _ := d.root.Get("last_physical_to_logical_map"); v == nil {
		return &expertMap{}, nil
	}
	shape, ids, err := d.ints(d.root, "last_physical_to_logical_map", 2)
	if err != nil {
		return nil, err
	}
	if shape[0] < 1 || shape[0] > layout.MaxLayers || shape[1] < 1 || shape[1] > layout.MaxExperts {
		return nil, d.wrong("last_physical_to_logical_map has shape %v, want [layers, slots]", shape)
	}
	m := &expertMap{layers: int(shape[0]), slots: int(shape[1]), there: true, of: make([]int32, len(ids))}
	identity := true
	for i, id := range ids {
		if id < 0 || id >= shape[1] {
			return nil, d.wrong("last_physical_to_logical_map: layer %d, slot %d holds expert %d, want one of 0 to %d", i/m.slots, i%m.slots, id, shape[1]-1)
		}
		m.of[i] = int32(id)
		m.experts = max(m.experts, int(id)+1)
		identity = identity && int(id) == i%m.slots
	}
	if identity {
		m.of = nil
	}
	return m, nil
}

// expert is the expert in a slot.
func (m *expertMap) expert(layer int, slot int32) int32 {
	if m.of == nil {
		return slot
	}
	return m.of[layer*m.slots+int(slot)]
}
