//! `exec`: streams, exit codes, flags, interrupts.
