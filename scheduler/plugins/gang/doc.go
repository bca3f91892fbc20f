// Package gang schedules gangs: pods that run all together or not at all.
//
// # How a gang is scheduled
//
// The pods of a gang wait outside the scheduling queue until the minimum exists
// (PreEnqueue). Then one of them, the first pod, enters. In its scheduling cycle the
// whole gang is planned by internal/placement over the view that internal/clusterstate
// keeps, and all members are charged to the view at once. The other members follow;
// their cycles look at their planned node only (PreFilter), under the filters of all
// other plugins. They wait until every planned member has passed (Permit), and bind
// together. One that others need something of, a resource claim or volume claim that they share and that has been given
// nothing yet, goes up to its binding before they pass. When another plugin refuses a planned node, the whole gang is rolled
// back and planned again, after a second look without that node (PostFilter, Unreserve). A pod that another plugin refuses
// whatever the node is marked in the view: the gang is planned without it until that plugin lets it by.
//
// A gang that does not fit leaves the queue. A worker tries it again when something
// is freed, in the order of the queue, and activates it when it fits; a gang that waits
// costs nothing while nothing changes. Only nodes that another plugin refused get
// another chance by themselves, after a pause that doubles. The planner's verdict stands on every pod of the gang and
// on its PodGroup, and is written when its cause changes, its numbers at a slow pace on one
// pod, by a writer of its own: no decision waits for a report.
//
// # Gangs that preempt others
//
// When the planner finds victims, or pods that are leaving already, the cycle holds the
// gang's place in the view, and the gang leaves the queue. Before that the place is
// tried in a dry run: PreFilter and Filter of the other plugins are run on copies of the nodes in
// the framework's snapshot, without the pods that are to go and with the members that
// come. A node that another plugin refuses is left out for the members of that role, and
// the gang is planned again, so that nobody is evicted in vain. A gang that was refused a
// node before is tried in a dry run before it assumes pods, too. The worker nominates the
// members, then evicts the victims. Once they have gone the gang is activated, and gets
// the place that it held. All decisions are made in cycles, in the order of the queue;
// the worker only finds out which gang has something to decide.
//
// The worker has the planner reserve places for gangs that have waited too long
// ([Args]), whenever something may have changed for them.
//
// A pod on its own that asks for GPUs is a gang of one. Pods of a gang that ask for
// no GPU while others do, such as an MPI launcher, are scheduled like any other pod
// once the gang runs.
//
// # What a crash leaves behind
//
// Node and GPUs of a pod reach the API server in one call, so the allocation
// records on bound pods are the whole truth. A scheduler that starts builds its view
// from them before its first cycle. A crash while a gang is being bound leaves some
// members bound and others pending; before anything else is planned, the rest of
// every such gang is planned next to its bound members, charged to the view, and
// nominated for its nodes, so that stock pods leave it its room, too. The
// GPUs that the crashed scheduler had in mind for them are still free then, since
// nobody has been scheduled in between, so the rest fits where it fitted before.
//
// Then every gang with nominated members is planned, in the order of the queue, so that
// places that were held before are held again. Victims that are being deleted are waited
// for, and those of which some members are left come before others. A victim for which no place is held any more, because the
// preemptor has gone, is evicted to its end: victims are marked before they are deleted, so that a mark is left where a
// pod was deleted, or was about to be.
//
// If a gang that is bound in part does not fit all the same, because a node or a GPU was lost meanwhile, and
// the gang never ran as a whole, its bound members are deleted for their job to
// recreate them: the gang as a whole is pending then.
package gang
