package acsfake

import "time"

// Knobs are failures to play. Counters count down as they are used up.
type Knobs struct {
	// Throttle refuses the next requests with Throttling.User.
	Throttle int
	// Unavailable answers the next requests with 503 ServiceUnavailable before they are carried out.
	Unavailable int
	// LoseCreateAnswers carries the next creations of a pool out and then breaks the
	// connection without an answer.
	LoseCreateAnswers int
	// ExtraTaskDuration makes every task slower.
	ExtraTaskDuration time.Duration
	// TaskFaults make the next tasks fail, one each.
	TaskFaults []Fault
	// OutOfStock are instance types of which there are no more instances.
	OutOfStock []string
	// DrainBlocked keeps nodes from being removed, as a PodDisruptionBudget does, until
	// it is turned off.
	DrainBlocked bool
	// NoOOSRole refuses desired_size as for an account without the service role.
	NoOOSRole bool
}

// Fault is why a task fails.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// State is the end state's spelling, "failed" or "fail"; "" is "failed".
	State string `json:"state,omitempty"`
	// NodesBefore is the number of nodes that a growing pool still gets.
	NodesBefore int `json:"nodesBefore,omitempty"`
	// Hidden lets the task succeed and hides the failure in its task_result.
	Hidden bool `json:"hidden,omitempty"`
}

// NoStock is the fault of a zone that has no more instances of the type.
func NoStock() Fault {
	return Fault{Code: "InstanceTypeNoStock", Message: "The specified instance type is out of stock in the zone."}
}

// NoQuota is the fault of an account whose quota for the instance family is used up;
// stock can be there all the same.
func NoQuota() Fault {
	return Fault{Code: "QuotaExceed.ElasticQuota", Message: "The elastic quota of the instance family is used up."}
}

// NoIPs is the fault of a vSwitch without free addresses.
func NoIPs() Fault {
	return Fault{Code: "InvalidVSwitchId.IpNotEnough", Message: "The vSwitch has not enough IP addresses."}
}

// SetKnobs replaces the knobs; tasks in progress see the new ones.
func (s *Server) SetKnobs(k Knobs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knobs = k
}

// use takes one off a counter of the knobs and reports whether there was one.
func (s *Server) use(counter *int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *counter == 0 {
		return false
	}
	*counter--
	return true
}

func (s *Server) nextFault() *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.knobs.TaskFaults) == 0 {
		return nil
	}
	fault := s.knobs.TaskFaults[0]
	s.knobs.TaskFaults = s.knobs.TaskFaults[1:]
	return &fault
}

func (s *Server) drainBlocked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knobs.DrainBlocked
}
