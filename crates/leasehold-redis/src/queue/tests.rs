//! The scripts and the client's decisions, on a model of the server that executes the scripts.

mod absences;
mod claims;
mod completions;
mod crash_detection;
mod damage;
mod ended;
mod handover;
mod handshakes;
mod hold_ends;
mod paths;
mod queues;
mod refusals;
mod scripts;
mod server;
mod validity;
