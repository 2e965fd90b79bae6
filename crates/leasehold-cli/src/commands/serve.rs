//! The arguments of serve.
#![allow(clippy::doc_markdown, reason = "these comments are read on a terminal")]

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::dialect::StoreInDialect;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) store: StoreInDialect,

    /// The address and port to listen on; port 0 takes a free port
    ///
    /// Any address but a loopback address needs --token-file.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7354")]
    pub(crate) listen: SocketAddr,

    /// Serve only names that begin with PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,

    /// Export when the jobs whose names begin with PREFIX were last completed
    ///
    /// `leasehold run --once` records that. An empty PREFIX takes all of them.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) once: Option<String>,

    /// Require the token in this file for everything but /healthz
    ///
    /// The token has 16 bytes or more. A client sends it as `Authorization: Bearer TOKEN`. In a
    /// browser, the token is the password; the user name does not matter.
    #[arg(long, value_name = "PATH")]
    pub(crate) token_file: Option<PathBuf>,

    /// Accept requests for this host name too, for instance behind a proxy
    ///
    /// Other names than localhost are refused, so that a web site cannot read the locks through
    /// the browser of a user (DNS rebinding).
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,

    /// Let users of the page break holds
    #[arg(long)]
    pub(crate) allow_break: bool,
}
