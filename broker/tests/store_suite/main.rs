//! Tests of the store through its public side: what was committed is there, whatever happened to the process and the files.

mod basics;
mod commits;
mod corruption;
mod disk_full;
mod kill;
mod model;
mod support;
