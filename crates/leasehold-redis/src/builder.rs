//! A store on Redis servers that is not open yet.

use std::error::Error as StdError;
use std::fmt::{self, Debug, Formatter};

use async_trait::async_trait;
use tokio::runtime::Handle;

use crate::client::Address;
use crate::examination::{self, Kind};
use leasehold_core::internal::{Password, UnopenedStore, background};
use leasehold_core::store::Store;
use leasehold_core::{Guarantees, Result};

/// The servers of a store, and its settings.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Locks, stores::Redis};
///
/// let builder = Redis::builder("redis://localhost")?;
/// let url = builder.url();
/// let locks = Locks::from_store(builder.connect().await?, &url)?;
/// # drop(locks);
/// # Ok(()) }
/// ```
#[expect(private_bounds, reason = "users name the stores of this crate only")]
pub struct StoreBuilder<S: ServerStore> {
    pub(crate) address: S::Address,
}

/// A store on Redis servers.
#[async_trait]
pub(crate) trait ServerStore: Store + Sized {
    type Address: ServerAddress;

    /// Connects to the servers. `runtime` drives the caller links; the background thread drives them
    /// if it is `None`.
    async fn open(address: Self::Address, runtime: Option<Handle>) -> Result<Self>;
}

/// What the URL of a store names, and the settings of the store.
#[async_trait]
pub(crate) trait ServerAddress: Clone + Debug + Send + Sync + 'static {
    /// Returns the URL without user, password and settings other than those of the format.
    fn shown_url(&self) -> String;

    /// Returns what the store guarantees on servers that have all that it needs.
    fn guarantees(&self) -> Guarantees;

    fn set_password(&mut self, password: Password);

    fn kind(&self) -> Kind;

    /// Returns the servers whose risks to locks are examined.
    async fn to_examine(&self) -> Result<Vec<Address>>;
}

#[expect(private_bounds, reason = "users name the stores of this crate only")]
impl<S: ServerStore> StoreBuilder<S> {
    /// Sets a function that returns the password of each new connection, such as an access token that
    /// expires. The user is that of the URL; the password of the URL is not used.
    ///
    /// The function is called on a thread that may block, and a connection waits up to five seconds
    /// for it. A line break at the end is no part of the password, as in a password file. So a
    /// program that gets tokens from an async client keeps the latest one for the function. If the
    /// function fails, so does the connection, as [`is_unavailable`](leasehold_core::Error::is_unavailable):
    /// an open store tries again. A call that never returns keeps its thread, and after 16 of them no
    /// connection begins. The password is in no error and no log.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Locks, stores::Redis};
    ///
    /// let builder = Redis::builder("redis://me@host")?;
    /// let builder = builder.password_from(|| std::fs::read_to_string("/run/token"));
    /// let url = builder.url();
    /// let locks = Locks::from_store(builder.connect().await?, &url)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn password_from<E>(
        mut self,
        function: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.address.set_password(Password::from_function(function));
        self
    }

    /// Returns the URL without user, password and settings other than those of the format.
    ///
    /// ```
    /// let builder = leasehold::stores::Redis::builder("redis://me:secret@localhost")?;
    /// assert!(!builder.url().contains("secret"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn url(&self) -> String {
        self.address.shown_url()
    }

    /// Connects to the servers. The store reconnects by itself whenever a connection breaks.
    ///
    /// # Errors
    /// - [`is_unavailable`](leasehold_core::Error::is_unavailable) if the server, or a majority of
    ///   several masters, cannot be reached.
    /// - [`is_denied`](leasehold_core::Error::is_denied) if a server rejects the user.
    /// - [`is_invalid`](leasehold_core::Error::is_invalid) if two masters are the same server, or one
    ///   is a replica.
    /// - [`is_unsupported`](leasehold_core::Error::is_unsupported) if locks are not safe on the server: it
    ///   is too old, evicts keys, does not run scripts as Redis does, or shares its data with
    ///   another master.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it opened.
    pub async fn connect(self) -> Result<S> {
        connect_on(self.address, Handle::try_current().ok()).await
    }

    pub(crate) fn unopened(self) -> UnopenedStore {
        let guarantees = self.address.guarantees();
        let address = self.address.clone();
        let unopened = UnopenedStore::new(self.url(), guarantees, move |runtime| {
            connect_on::<S>(address.clone(), runtime)
        });
        unopened.examined_by(move || {
            let address = self.address.clone();
            async move {
                let servers = address.to_examine().await?;
                examination::examine(address.kind(), &servers).await
            }
        })
    }
}

async fn connect_on<S: ServerStore>(address: S::Address, runtime: Option<Handle>) -> Result<S> {
    connect_by(S::open(address, runtime)).await
}

/// Runs the opening of a store.
pub(crate) async fn connect_by<S>(opening: impl Future<Output = Result<S>>) -> Result<S> {
    background::start()?;
    background::on_background(opening).await
}

impl<S: ServerStore> Clone for StoreBuilder<S> {
    fn clone(&self) -> Self {
        Self {
            address: self.address.clone(),
        }
    }
}

impl<S: ServerStore> Debug for StoreBuilder<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
