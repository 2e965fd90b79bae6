//! What the engine counts: the values of labels of metrics.

/// A request of the engine, as a label.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestKind {
    Enter,
    Renew,
    Leave,
    Inspect,
    List,
}

/// The outcome of one renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewalOutcome {
    Renewed,
    Gone,
    NoReply,
}

impl RequestKind {
    #[allow(dead_code, reason = "only the feature `metrics` has labels")]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Renew => "renew",
            Self::Leave => "leave",
            Self::Inspect => "inspect",
            Self::List => "list",
        }
    }
}

impl RenewalOutcome {
    #[allow(dead_code, reason = "only the feature `metrics` has labels")]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Renewed => "renewed",
            Self::Gone => "gone",
            Self::NoReply => "no_reply",
        }
    }
}
