// Package usql names the version of usql that tests build and start, with its driver for Hive alone.
//
// That driver's module, sqlflow.org/gohive, is taken from the repository of its authors: nothing serves it under its own name.
package usql
