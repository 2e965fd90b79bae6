use std::sync::OnceLock;

use async_trait::async_trait;

use super::*;
use crate::engine::acquire::acquire;
use crate::engine::{AcquireOptions, WaitLimit};
use crate::store::{Intercept, Intercepted};
use crate::{Name, Store, stores};

/// Records whether the hold was valid when the store received the request to leave.
#[derive(Debug, Default)]
struct ReleaseObserver {
    store: stores::Memory,
    watched: Arc<OnceLock<Arc<Validity>>>,
    was_valid: Arc<OnceLock<bool>>,
}

#[async_trait]
impl Intercept for ReleaseObserver {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    async fn leave(&self, claim: &Claim) -> Result<bool> {
        let validity = self.watched.get().expect("it was granted");
        self.was_valid
            .set(validity.check().is_ok())
            .expect("the claim leaves once");
        crate::Store::leave(&self.store, claim).await
    }
}

/// Shows S8.
#[tokio::test]
async fn hold_is_invalid_before_release_is_sent() {
    for is_dropped in [false, true] {
        let store = ReleaseObserver::default();
        let watched = Arc::clone(&store.watched);
        let was_valid = Arc::clone(&store.was_valid);
        let engine = Engine::new(Arc::new(Intercepted(store)), "memory:").expect("it starts");

        let options = AcquireOptions {
            name: Name::parse("a").expect("a valid name"),
            share: Share::MUTEX,
            lease: Duration::from_secs(30),
            label: String::new(),
            is_candidate: false,
            no_renewal: false,
            max_hold: None,
            reply_timeout: Duration::from_secs(2),
            reserved: 0,
            part_of: None,
        };
        let acquired = acquire(&engine, &options, WaitLimit::Forever).await;
        let hold = acquired.expect("the store replies").expect("it is free");
        watched.set(Arc::clone(&hold.validity)).expect("once");
        assert!(hold.check().is_ok());

        if is_dropped {
            drop(hold);
            crate::drain().await;
        } else {
            hold.release().await.expect("it was held");
        }

        let was_valid = was_valid.get();
        assert_eq!(was_valid, Some(&false), "valid, is_dropped: {is_dropped}");
    }
}
