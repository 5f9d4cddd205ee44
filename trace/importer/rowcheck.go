package importer

import "fmt"

// rowCheck proves rows of expert ids where they are read, so that an error
// names the very line: a block's tokens are checked again only when it is full.
type rowCheck struct {
	topK  int
	loose bool     // rows may have fewer ids
	seen  []uint32 // by id: the number of the row it was last seen in
	row   uint32
}

func newRowCheck(experts, topK int) *rowCheck {
	return &rowCheck{topK: topK, seen: make([]uint32, experts)}
}

// check says what is wrong with a row.
func (c *rowCheck) check(ids []int32) error {
	if len(ids) > c.topK || (!c.loose && len(ids) < c.topK) {
		return fmt.Errorf("the row has %d expert ids, want top-k %d", len(ids), c.topK)
	}
	c.row++
	if c.row == 0 {
		clear(c.seen)
		c.row = 1
	}
	for _, id := range ids {
		switch {
		case id < 0 || int(id) >= len(c.seen):
			return fmt.Errorf("expert id %d is outside 0 to %d", id, len(c.seen)-1)
		case c.seen[id] == c.row:
			return fmt.Errorf("expert id %d is named twice", id)
		}
		c.seen[id] = c.row
	}
	return nil
}
