package store

// Generated reports whether a row of the table is a message whose identity was
// made of its position when it was sealed: in another topic it would say
// something that is not so.
func (t *Table) Generated(r Row) bool {
	id, ok := r.ID.Key.AsUUID()
	return ok && r.Position > 0 && id == sealedIdentity(t.ID, r.Position, r.Appended)
}
