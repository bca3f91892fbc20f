package clustercache

import "github.com/gpuplan/terraform-provider-gpuplan/internal/clusterstate"

// Fence keeps what has no node of gangs, by key, from getting one for a reason, also of pods that are still to come, until the reason
// is "". A member that is about to get its node gets it ([Cache.Placed]).
func (c *Cache) Fence(why string, keys ...string) {
	for _, key := range keys {
		c.notify(c.fence(why, key))
	}
}

func (c *Cache) fence(why, key string) clusterstate.Change {
	c.lock()
	defer c.unlock()
	return c.state.SetFence(key, why)
}

// Placed counts the pods of gangs, by key, that have a node, or are about to get one.
func (c *Cache) Placed(keys ...string) (pods int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		pods += c.state.Placed(key)
	}
	return pods
}
