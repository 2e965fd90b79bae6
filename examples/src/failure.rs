//! What a request that uses locks fails with, and its status.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use leasehold::{ErrorKind, Refused};
use tower::BoxError;

/// Why a request failed. A handler returns it, so that `?` works on all three errors.
#[derive(Debug)]
pub enum Failure {
    /// Another client holds the lock.
    Busy(Refused),
    /// The lock, or its store.
    Lock(leasehold::Error),
    /// The work under the lock.
    Work(anyhow::Error),
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Busy(_) => StatusCode::LOCKED,
            Self::Lock(error) => status_of(error.kind()),
            Self::Work(_) => StatusCode::BAD_GATEWAY,
        };
        let text = match self {
            Self::Busy(refused) => refused.to_string(),
            Self::Lock(error) => error.to_string(),
            Self::Work(error) => error.to_string(),
        };
        (status, text).into_response()
    }
}

fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        // The client may send the request again.
        ErrorKind::Unavailable | ErrorKind::Lost => StatusCode::SERVICE_UNAVAILABLE,
        // The request names the lock.
        ErrorKind::Invalid => StatusCode::BAD_REQUEST,
        // An operator must correct the service or its store.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Busy(refused)
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Work(error)
    }
}

/// From a handler under a [`LockLayer`](crate::lock_layer::LockLayer).
impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        match error.downcast::<Refused>() {
            Ok(refused) => Self::Busy(*refused),
            Err(error) => match error.downcast::<leasehold::Error>() {
                Ok(error) => Self::Lock(*error),
                Err(error) => Self::Work(anyhow::Error::from_boxed(error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Error;

    use super::*;

    #[test]
    fn each_kind_of_error_has_its_status() {
        for (kind, status) in [
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Lost, 503),
            (ErrorKind::Invalid, 400),
            (ErrorKind::Denied, 500),
            (ErrorKind::Damaged, 500),
        ] {
            let error = Error::for_test(kind);
            let boxed = BoxError::from(error.clone());
            for failure in [Failure::from(error), Failure::from(boxed)] {
                let response = failure.into_response();
                assert_eq!(response.status().as_u16(), status, "{kind:?}");
            }
        }
    }

    #[tokio::test]
    async fn busy_lock_is_not_an_outage() -> leasehold::Result<()> {
        let lock = leasehold::open("memory:").await?.mutex("orders/42");
        let _guard = lock.acquire().await?;

        let refused = lock.try_acquire().await?.expect_err("it is held");
        let response = Failure::from(refused).into_response();
        assert_eq!(response.status(), StatusCode::LOCKED);
        Ok(())
    }
}
