// Package fleet is what the scheduler of a fleet and a plan of Terraform have in common: to which member clusters a policy lets a job
// go, and how a hub says that these are reached.
package fleet
