// Package usql names the version of usql that tests build and start, with its driver for Hive alone.
//
// That driver's module, sqlflow.org/gohive, is taken from the repository of its authors, so that the host of its name is not needed.
package usql
