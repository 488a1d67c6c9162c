// Package spec is the specification of the statement language: chapters of
// statements with their answers, in the files *.script, which a user can read
// and a test runs. README.md says how a script is written.
//
// Each script runs against the same store on every surface (in memory, on
// disk), and the answers must be the same on all of them, to the letter.
package spec
