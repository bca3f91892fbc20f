package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/placement"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

// page collects a text whose tables are aligned.
type page struct{ bytes.Buffer }

// print writes a line.
func (p *page) print(format string, args ...any) {
	fmt.Fprintf(p, format+"\n", args...) // a buffer does not fail
}

// table writes rows of cells under their headings, each behind an indent.
func (p *page) table(indent string, rows [][]string) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, indent+strings.Join(row, "\t"))
	}
	_ = w.Flush() // a buffer does not fail
	p.trimRight()
}

// trimRight takes away blanks that alignment left at the ends of lines.
func (p *page) trimRight() {
	lines := strings.Split(p.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	p.Reset()
	p.WriteString(strings.Join(lines, "\n"))
}

func (p *page) writeTo(w io.Writer) error {
	_, err := p.WriteTo(w)
	return err
}

// WriteText writes the whole answer for people; now is the time of reading.
func (a Answer) WriteText(w io.Writer, now time.Time) error {
	var p page
	p.print("%s", a.headline())
	a.facts(&p, now)
	if len(a.Domains) > 0 {
		rows := [][]string{{"WHERE", "NODES", "FREE", "FIT", "WHAT STOPS THE NEXT"}}
		for _, r := range a.Domains {
			rows = append(rows, []string{r.Where, fmt.Sprint(r.Nodes), r.free(), fmt.Sprint(r.Fit), joinReasons(r.Reasons)})
		}
		p.print("")
		p.print("Room for its members")
		p.table("  ", rows)
	}
	a.fixes(&p)
	a.places(&p)
	return p.writeTo(w)
}

// WriteFixes writes only what would make the gang fit.
func (a Answer) WriteFixes(w io.Writer) error {
	var p page
	p.print("%s", a.headline())
	a.fixes(&p)
	if a.State == Waiting && a.Job == "" && len(a.Fixes) == 0 {
		p.print("")
		p.print("No single change to a pool, a quota maximum, a toleration, the mode or the size of")
		p.print("the gang makes it fit. What stops it: %s.", joinReasons(a.Reasons))
	}
	return p.writeTo(w)
}

// Name says what the answer is about.
func (a Answer) Name() string {
	if a.Job != "" {
		return a.Job + " " + a.Gang
	}
	if a.Pod {
		return "Pod " + a.Gang
	}
	return "Gang " + a.Gang
}

// headline is the answer in one line.
func (a Answer) headline() string {
	switch a.State {
	case Incomplete:
		if a.Job != "" {
			return fmt.Sprintf("%s has no pods that ask for GPUs: %s", a.Name(), sentence(strings.Join(a.Rejections, "; ")))
		}
		if a.Barred != "" {
			return a.Name() + " waits: " + a.Barred + "."
		}
		if a.Missing == 0 {
			return a.Name() + " waits for its PodGroup to appear."
		}
		return fmt.Sprintf("%s waits for %s to appear: %d of %d are there.", a.Name(), count(a.Missing, "member"), a.Needed-a.Missing, a.Needed)
	case Fits:
		return fmt.Sprintf("%s fits: there is room for %s.", a.Name(), a.needs())
	case Rejected:
		return fmt.Sprintf("%s waits, though there is room for %s: %s.", a.Name(), a.needs(), strings.Join(a.objections(), "; "))
	case Preempting:
		text := fmt.Sprintf("%s waits for others to leave: %s. Then there is room for %s.", a.Name(), a.Awaits, a.needs())
		return text + a.besides()
	case Queued:
		return fmt.Sprintf("%s is held by the job queue: %s", a.Name(), sentence(strings.Join(a.Rejections, "; ")))
	case Unknown:
		return fmt.Sprintf("%s is not in the answer: %s", a.Name(), sentence(strings.Join(a.Rejections, "; ")))
	case Suspended:
		return fmt.Sprintf("%s has no pods: %s", a.Name(), sentence(strings.Join(a.Rejections, "; ")))
	case Running:
		text := fmt.Sprintf("%s runs with %s%s.", a.Name(), count(a.Running, "member"), a.sick())
		if a.Pod {
			text = fmt.Sprintf("%s runs%s.", a.Name(), a.sick())
		}
		if a.Awaits != "" {
			text += fmt.Sprintf(" It gets %d more, up to the minimum of its quota, when others have left: %s.", a.Fit-a.Running, a.Awaits)
		}
		if a.Late != nil {
			text += " Its " + a.Late.text() + "."
		}
		return text + a.others() + a.reservation()
	}
	if a.Job != "" {
		return fmt.Sprintf("%s is in no cluster of the fleet: %s", a.Name(), sentence(strings.Join(a.Rejections, "; ")))
	}
	text := fmt.Sprintf("%s waits: %d of %d members fit", a.Name(), a.Fit, a.Needed)
	if a.Pod {
		text = a.Name() + " waits"
	}
	return text + ", because " + joinReasons(a.Reasons) + "." + a.reservation() + a.besides()
}

// needs says of whom there is room for as many as must run.
func (a Answer) needs() string {
	if a.Needed == 1 {
		return "it"
	}
	return fmt.Sprintf("the %d members that it needs", a.Needed)
}

// sick says, as the end of a sentence, that a gang runs on GPUs that must not be used.
func (a Answer) sick() string {
	switch len(a.SickGPUs) {
	case 0:
		return ""
	case 1:
		return ", and 1 of its GPUs is sick"
	}
	return fmt.Sprintf(", and %d of its GPUs are sick", len(a.SickGPUs))
}

// others says why members wait beyond those that run.
func (a Answer) others() string {
	rest := a.Running + a.Surplus - a.Fit
	wait, why := "wait", joinReasons(a.Reasons)
	if objections := a.objections(); len(objections) > 0 && (len(a.Rejections) > 0 || why == "" && a.ReservedBy == "") {
		rest, why = a.Surplus, strings.Join(objections, "; ")
	}
	if rest == 1 {
		wait = "waits"
	}
	switch {
	case rest <= 0 || why == "" && a.ReservedBy == "":
		return ""
	case why == "":
		return fmt.Sprintf(" %s %s.", count(rest, "more member"), wait)
	}
	return fmt.Sprintf(" %s %s, because %s.", count(rest, "more member"), wait, why)
}

// objections are what keeps a gang from starting for which there is room; the scheduler's
// words when nothing else is known.
func (a Answer) objections() []string {
	if len(a.Rejections) > 0 || a.Said == "" {
		return a.Rejections
	}
	return []string{"the scheduler says: " + strings.TrimSuffix(a.Said, ".")}
}

// reservation says whose reservation holds a gang back that waits, and whom its own waits for.
func (a Answer) reservation() string {
	text := placement.Verdict{ReservedBy: a.ReservedBy}.ReservedText()
	if a.State == Waiting && a.Awaits != "" {
		text += fmt.Sprintf(" It has a reservation, and waits for others to end: %s.", a.Awaits)
	}
	return text
}

// besides says what else keeps a gang from starting that has no room.
func (a Answer) besides() string {
	if len(a.Rejections) == 0 {
		return ""
	}
	return " Besides, " + strings.Join(a.Rejections, "; ") + "."
}

// sentence ends a text with one full stop.
func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }

// facts says what the gang asks for, and what the scheduler has written.
func (a Answer) facts(p *page, now time.Time) {
	var rows [][]string
	if a.Cluster != "" {
		rows = append(rows, []string{"cluster", a.Cluster})
	}
	for i, r := range a.Roles {
		label := ""
		if i == 0 {
			label = "asks for"
		}
		text := fmt.Sprintf("%d × %s: %s", r.Members, r.Name, r.Asks)
		if a.Pod {
			text = r.Asks
		}
		if r.Minimum > 0 {
			text += fmt.Sprintf(" (at least %d must run)", r.Minimum)
		}
		if r.Late {
			text += " (once the others run)"
		}
		rows = append(rows, []string{label, text})
	}
	if a.Priority != 0 {
		rows = append(rows, []string{"priority", fmt.Sprint(a.Priority)})
	}
	for _, l := range a.Quota {
		rows = append(rows, []string{"quota", l.text()})
	}
	for _, sick := range a.SickGPUs {
		rows = append(rows, []string{"sick", sick.text()})
	}
	for _, claim := range a.Unallocated {
		rows = append(rows, []string{"claim", fmt.Sprintf("resource claim %s is allocated when its pod is placed", claim)})
	}
	for _, odd := range a.Odd {
		rows = append(rows, []string{"odd", odd})
	}
	if a.Scheduler != "" {
		rows = append(rows, []string{"scheduler", fmt.Sprintf("%s, not %s: what follows is what ours would do", a.Scheduler, contract.SchedulerName)})
	}
	if a.Said != "" && a.State != Running {
		said := a.Said
		if said == a.Verdict {
			said = "the same"
		}
		rows = append(rows, []string{"pods say", fmt.Sprintf("%s (waits for %s)", said, duration.HumanDuration(now.Sub(a.Since)))})
	}
	if len(rows) > 0 {
		p.print("")
	}
	p.table("  ", rows)
}

// text is a line such as "root/team: 12 of aliyun.com/gpu used, min 4, max 16".
func (l Limit) text() string {
	text := fmt.Sprintf("%s: %s of %s used", l.Leaf, quota.Format(l.Resource, l.Used), l.Resource)
	if l.Min != nil {
		text += ", min " + quota.Format(l.Resource, *l.Min)
	}
	if l.Max != nil {
		text += ", max " + quota.Format(l.Resource, *l.Max)
	}
	return text
}

func (a Answer) fixes(p *page) {
	what, list := "It would fit", a.Fixes
	if first := map[State]string{Queued: "the queue lets it go", Suspended: "a queue lets it go", Incomplete: "a policy sends it"}[a.State]; a.onHub && first != "" {
		what = "Once " + first + ", it would fit"
	}
	if a.Late != nil && len(list) == 0 {
		what, list = "Its "+strings.Join(a.Late.Members, ", ")+" would start", a.Late.Fixes
	}
	if len(list) == 0 {
		return
	}
	p.print("")
	p.print("%s with any one of these, each of them planned", what)
	for i, f := range list {
		p.print("  %d. %s", i+1, f.Text)
	}
}

// places lists where members run, and where those go that do not.
func (a Answer) places(p *page) {
	if len(a.Places) == 0 {
		return
	}
	heading := map[State]string{
		Running: "Where it runs", Fits: "Where it goes", Incomplete: "Where its members run",
		Rejected: "Where there is room", Preempting: "Where it goes then",
		Waiting: fmt.Sprintf("The most that fit at once, %d of %d", a.Fit, a.Needed),
	}[a.State]
	p.print("")
	p.print("%s", heading)
	p.table("  ", placeRows(a.Places, a.State != Running))
}

// mostRows is the length up to which a table of places has one row per member;
// a longer one has one row per node.
const mostRows = 16

// placeRows is a table of places; running tells to mark the members that run.
func placeRows(places []Place, running bool) [][]string {
	rows := [][]string{{"MEMBER", "NODE", "GPUS", "RING"}}
	if len(places) > mostRows {
		places = byNode(places)
	}
	for _, p := range places {
		row := []string{p.Member, p.Node, p.gpus(), p.ring()}
		if p.Runs && running {
			row = append(row, "runs")
		}
		rows = append(rows, row)
	}
	return rows
}

// byNode joins the members on one node to one place.
func byNode(places []Place) []Place {
	var joined []Place
	for _, p := range places {
		i := slices.IndexFunc(joined, func(q Place) bool { return q.Node == p.Node && q.Runs == p.Runs })
		if i < 0 {
			joined = append(joined, p)
			continue
		}
		q := &joined[i]
		first, _, _ := strings.Cut(q.Member, " … ")
		q.Member = first + " … " + p.Member
		q.GPUs = slices.Sorted(slices.Values(slices.Concat(q.GPUs, p.GPUs)))
		q.Shares = slices.Concat(q.Shares, p.Shares)
	}
	return joined
}

func (p Place) gpus() string {
	if len(p.Shares) > 0 {
		parts := make([]string, len(p.Shares))
		for i, s := range p.Shares {
			parts[i] = fmt.Sprintf("%d (%d GiB", s.GPU, s.MemoryGiB)
			if s.CorePercent > 0 {
				parts[i] += fmt.Sprintf(", %d %%", s.CorePercent)
			}
			parts[i] += ")"
		}
		return strings.Join(parts, ", ")
	}
	if len(p.GPUs) == 0 {
		return "-"
	}
	return contract.IndexList(p.GPUs)
}

func (p Place) ring() string {
	switch {
	case p.RingGBps == 0:
		return "-"
	case len(p.GPUs) == 0:
		return fmt.Sprintf("%g GB/s at least", p.RingGBps)
	case p.NVLinkRings == 0:
		return fmt.Sprintf("%g GB/s over PCIe", p.RingGBps)
	}
	return fmt.Sprintf("%g GB/s NVLink", p.RingGBps)
}

func (r Domain) free() string {
	if r.FreeGiB > 0 {
		return fmt.Sprintf("%d GiB", r.FreeGiB)
	}
	return count(r.FreeGPUs, "GPU")
}

func joinReasons(list []Reason) string {
	texts := make([]string, len(list))
	for i, r := range list {
		texts[i] = r.Text
	}
	return strings.Join(texts, "; ")
}

// WriteGangs writes a table of gangs; now is the time of reading.
func WriteGangs(w io.Writer, gangs []Answer, now time.Time) error {
	var p page
	if len(gangs) == 0 {
		p.print("No pod asks for GPUs.")
		return p.writeTo(w)
	}
	rows := [][]string{{"GANG", "STATE", "MEMBERS", "PRIORITY", "WAITS", "WHY"}}
	fleet := slices.ContainsFunc(gangs, func(a Answer) bool { return a.Cluster != "" || a.onHub })
	if fleet {
		rows[0] = slices.Insert(rows[0], 1, "CLUSTER")
	}
	for _, a := range gangs {
		waits := "-"
		since := a.Since
		why := cmp.Or(strings.Join(a.Rejections, "; "), a.Said)
		if a.State == Running {
			since, why = time.Time{}, strings.TrimPrefix(a.sick(), ", and ")
		}
		if a.Late != nil {
			since, why = a.Late.Since, a.Late.text()+a.sick()
		}
		if !since.IsZero() {
			waits = duration.HumanDuration(now.Sub(since))
		}
		if a.State == Incomplete && a.Job == "" {
			why = "its PodGroup is missing"
			if a.Missing > 0 {
				why = count(a.Missing, "member") + " missing"
			}
			why = cmp.Or(a.Barred, why)
		}
		name := a.Gang
		if a.Owner != "" {
			name = fmt.Sprintf("%s (pod %s)", a.Owner, name[strings.IndexByte(name, '/')+1:])
		}
		row := []string{name, string(a.State), fmt.Sprintf("%d/%d", a.Running, a.Needed), fmt.Sprint(a.Priority), waits, why}
		if fleet {
			row = slices.Insert(row, 1, cmp.Or(a.Cluster, "-"))
		}
		rows = append(rows, row)
	}
	p.table("", rows)
	return p.writeTo(w)
}

// WriteLosses writes what would happen without nodes.
func WriteLosses(w io.Writer, nodes []string, losses []Loss) error {
	var p page
	names := strings.Join(nodes, ", ")
	if len(losses) == 0 {
		p.print("Without %s nobody loses a place.", names)
		return p.writeTo(w)
	}
	p.print("Without %s", names)
	for _, l := range losses {
		p.print("")
		if l.Verdict != "" {
			p.print("%s loses %s and would wait: %s", l.Gang, pods(l.Pods), l.Verdict)
			continue
		}
		l.moves(&p)
	}
	return p.writeTo(w)
}

// moves says where those would go that lose their place.
func (l Loss) moves(p *page) {
	p.print("%s loses %s, which would go to", l.Gang, pods(l.Pods))
	if len(l.Places) > 0 {
		p.table("  ", placeRows(l.Places, false))
	}
	if len(l.Late) > 0 {
		p.print("  %s: where kube-scheduler finds room, once the others run", strings.Join(l.Late, ", "))
	}
}

func pods(names []string) string {
	if len(names) == 1 {
		return "pod " + names[0]
	}
	return fmt.Sprintf("%d pods", len(names))
}
