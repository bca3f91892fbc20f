package placement

// awaited returns the pods that a reservation still waits for, but for those that are overdue.
func (v *View) awaited(h *reserved) []*Pod {
	var pods []*Pod
	for _, ids := range h.after {
		for _, id := range ids {
			if p := v.pods[id]; p != nil && !p.Overdue {
				pods = append(pods, p)
			}
		}
	}
	return pods
}
