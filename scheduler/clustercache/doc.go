// Package clustercache follows a cluster for the scheduler: it keeps the state of it in step with
// watches, tells who subscribes what changes, and has one gang at a time planned and its members
// charged before anybody else is planned.
package clustercache
