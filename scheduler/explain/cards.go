package explain

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/gpu"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
)

// CardMap is where everything is: every card of every node, and who is on it.
type CardMap struct {
	Pools []Pool `json:"pools"`
	// Holders are the gangs and pods that hold cards, in the order in which they are met.
	Holders []Holder `json:"holders"`
	// Bare is the number of nodes without cards.
	Bare int `json:"bareNodes"`
}

// Pool is nodes of one pool whose cards are alike.
type Pool struct {
	Name  string `json:"name"`
	Mode  string `json:"mode"`
	Model string `json:"model,omitempty"`
	// CardGiB is the memory of one card that pods can have, 0 when nobody knows it.
	CardGiB int64  `json:"cardGiB,omitempty"`
	Nodes   []Node `json:"nodes"`
}

// Node is one node with its cards.
type Node struct {
	Name string `json:"name"`
	// Cordoned tells that the node takes no new pods.
	Cordoned bool `json:"cordoned,omitempty"`
	// Unsure tells that the scheduler hands out cards here, and that a pod past it has some of
	// which nobody knows which they are: nobody gets any of the node until it has ended.
	Unsure bool   `json:"unsure,omitempty"`
	Cards  []Card `json:"cards"`
}

// Card is one card. It is free when nobody is on it and it is healthy.
type Card struct {
	// Index is the NVML index.
	Index int `json:"index"`
	// Unhealthy says why the card is not used, "" when it is well.
	Unhealthy string `json:"unhealthy,omitempty"`
	Holds     []Hold `json:"holds,omitempty"`
}

// Hold is one pod on a card.
type Hold struct {
	// Holder is a position in CardMap.Holders.
	Holder int `json:"holder"`
	// Pod is "namespace/name".
	Pod string `json:"pod"`
	// MemoryGiB and CorePercent are its part of the card; both 0 for the whole card.
	MemoryGiB   int64 `json:"memoryGiB,omitempty"`
	CorePercent int64 `json:"corePercent,omitempty"`
	// Guessed tells that the node's device plugin picked the card and nobody else
	// knows which: the pod holds one of the node's cards for each such entry.
	Guessed bool `json:"guessed,omitempty"`
}

// Holder is a gang, or a pod on its own, that holds cards.
type Holder struct {
	Gang string `json:"gang"`
	Pods int    `json:"pods"`
	// Cards counts the GPUs that it holds, wholly or in part, each once.
	Cards int `json:"cards"`
}

// Free reports whether nobody is on the card and it is healthy.
func (c Card) Free() bool { return c.Unhealthy == "" && len(c.Holds) == 0 }

// used sums what the pods on the card hold of it.
func (c Card) used() (memoryGiB, corePercent int64) {
	for _, h := range c.Holds {
		memoryGiB += h.MemoryGiB
		corePercent += h.CorePercent
	}
	return memoryGiB, corePercent
}

// shared reports whether the pool's cards are given away in parts.
func (p Pool) shared() bool {
	return p.Mode != string(placement.ModeDefault) && p.Mode != string(placement.ModeTopology)
}

// Cards answers where everything is.
func Cards(scene *inventory.Scene) CardMap {
	m := CardMap{Pools: []Pool{}, Holders: []Holder{}}
	holders := map[string]int{}
	for _, name := range scene.View.Nodes() {
		node, _ := scene.View.Node(name)
		if node.Cards == nil {
			m.Bare++
			continue
		}
		pool := m.pool(scene, node)
		pool.Nodes = append(pool.Nodes, m.node(scene, node, holders))
	}
	return m
}

// pool returns the pool of a node, which is new when the node is unlike the one before.
func (m *CardMap) pool(scene *inventory.Scene, node placement.Node) *Pool {
	cards := node.Cards.Machine().Cards
	p := Pool{Name: node.Pool, Mode: string(node.Mode), Model: scene.Model(node.Name)}
	for _, card := range cards {
		p.CardGiB = max(p.CardGiB, (card.MemoryMiB-node.HeadroomMiB)/1024)
	}
	i := slices.IndexFunc(m.Pools, func(q Pool) bool {
		return q.Name == p.Name && q.Mode == p.Mode && q.Model == p.Model && q.CardGiB == p.CardGiB && len(q.Nodes[0].Cards) == len(cards)
	})
	if i < 0 {
		i = len(m.Pools)
		m.Pools = append(m.Pools, p)
	}
	return &m.Pools[i]
}

// node lists the cards of a node with what is on them.
func (m *CardMap) node(scene *inventory.Scene, node placement.Node, holders map[string]int) Node {
	out := Node{Name: node.Name, Cordoned: node.Unschedulable}
	for _, card := range node.Cards.Machine().Cards {
		out.Cards = append(out.Cards, Card{Index: card.Index, Unhealthy: card.Unhealthy})
	}
	pods := scene.View.Pods(node.Name)
	slices.SortFunc(pods, func(a, b placement.Pod) int {
		return cmp.Or(compareKnown(a, b), comparePods(scene.Pod(a.ID), scene.Pod(b.ID)))
	})
	for _, pod := range pods {
		if pod.Request.Mode == placement.ModeNone && pod.Own == 0 && len(pod.Shares) == 0 {
			continue
		}
		m.put(&out, pod, scene.Pod(pod.ID), holders)
		guessed := pod.Own == 0 && len(pod.Shares) == 0
		out.Unsure = out.Unsure || guessed && node.Mode != placement.ModeDefault && !pod.Request.Shared()
	}
	return out
}

// put puts a pod on its cards; a pod whose cards nobody knows, on the first that are free.
func (m *CardMap) put(node *Node, pod placement.Pod, object *corev1.Pod, holders map[string]int) {
	hold := Hold{Pod: object.Namespace + "/" + object.Name}
	gang := pod.Gang
	if gang == "" {
		gang = hold.Pod
	}
	i, ok := holders[gang]
	if !ok {
		i = len(m.Holders)
		holders[gang] = i
		m.Holders = append(m.Holders, Holder{Gang: gang})
	}
	hold.Holder = i
	m.Holders[i].Pods++
	on := func(card int, h Hold) {
		if !slices.ContainsFunc(node.Cards[card].Holds, func(other Hold) bool { return other.Holder == i }) {
			m.Holders[i].Cards++
		}
		node.Cards[card].Holds = append(node.Cards[card].Holds, h)
	}
	for _, card := range pod.Own.Cards() {
		on(card, hold)
	}
	for _, share := range pod.Shares {
		part := hold
		part.MemoryGiB, part.CorePercent = share.MemoryGiB, share.CorePercent
		on(share.Card, part)
	}
	if pod.Own != 0 || len(pod.Shares) > 0 {
		return
	}
	hold.Guessed = true
	left := pod.Request.Cards
	if pod.Request.Shared() {
		part := pod.Request.PerCard()
		hold.MemoryGiB, hold.CorePercent = part.MemoryGiB, part.CorePercent
		left = max(left, 1)
	}
	for card := range node.Cards {
		if left > 0 && (node.Cards[card].Free() || pod.Request.Shared() && node.Cards[card].Unhealthy == "") {
			on(card, hold)
			left--
		}
	}
}

// compareKnown orders pods whose cards are known before those that get what is left.
func compareKnown(a, b placement.Pod) int {
	guessed := func(p placement.Pod) int {
		if p.Own == 0 && len(p.Shares) == 0 {
			return 1
		}
		return 0
	}
	return guessed(a) - guessed(b)
}

// comparePods orders pods by namespace and name.
func comparePods(a, b *corev1.Pod) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

// cardIndex is the NVML index of a card by its position.
func cardIndex(node placement.Node, position int) int {
	return inventory.Indexes(gpu.SetOf(position), node.Cards)[0]
}

// key is the letter of a holder: a to z, then aa, ab and so on.
func key(holder int) string {
	letters := string(rune('a' + holder%26))
	if holder >= 26 {
		return key(holder/26-1) + letters
	}
	return letters
}

// Heading names the pool and its cards: "pool v100: mode topology, 8 × Tesla V100, 32 GiB".
func (p Pool) Heading() string {
	name := "no pool"
	if p.Name != "" {
		name = "pool " + p.Name
	}
	text := fmt.Sprintf("%s: mode %s, %d", name, p.Mode, len(p.Nodes[0].Cards))
	if p.Model != "" {
		text += " × " + p.Model
	} else {
		text += " cards"
	}
	if p.CardGiB > 0 {
		text += fmt.Sprintf(", %d GiB", p.CardGiB)
	}
	return text
}

// summary says how much of the node is free, for its mode.
func (p Pool) summary(n Node) string {
	if !p.shared() {
		free := 0
		for _, c := range n.Cards {
			if c.Free() && !n.Unsure {
				free++
			}
		}
		return fmt.Sprintf("%d of %d free", free, len(n.Cards))
	}
	var free, all int64
	for _, c := range n.Cards {
		used, _ := c.used()
		all += p.CardGiB
		if c.Unhealthy == "" && !n.Unsure {
			free += max(p.CardGiB-used, 0)
		}
	}
	return fmt.Sprintf("%d of %d GiB free", free, all)
}
