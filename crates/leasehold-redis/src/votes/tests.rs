//! Models of the rule by which independent masters keep one lock.
//!
//! A master is a [`VoteRegister`](register::VoteRegister), and the clients count votes as the store
//! does.

mod exclusion;
mod register;
mod rounds;
mod scripts;
mod tokens;
