// Package memory measures how much memory a store takes while it does much:
// thousands of appends that wait for the disk, a READ and a SELECT over a large
// topic. It is measured in a process of its own, as the highest resident size
// that the kernel saw (VmHWM of /proc/self/status, proc(5)).
package memory
