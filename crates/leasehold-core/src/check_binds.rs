//! What a statement in the user's transaction needs to pin a grant.

/// The statement that pins a grant in a transaction of yours, and what it takes: from
/// [`Guard::check_binds`](crate::Guard::check_binds).
///
/// Bind the fields behind `statement` in their order. The statement returns one row without a
/// value, or fails with an SQLSTATE of the class `LH`, or with `40001`.
///
/// ```
/// # async fn charge(guard: &leasehold::Guard) -> leasehold::Result<()> {
/// let binds = guard.check_binds()?;
/// println!("{} takes {} and {}, …", binds.statement, binds.name, binds.token);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckBinds {
    /// The statement, for the schema of this store.
    pub statement: String,
    /// `$1`, a text: the name of the lock, as the database has it.
    pub name: String,
    /// `$2`, a bigint: the token of the grant.
    pub token: i64,
    /// `$3`, a text: the id of the claim.
    pub claim: String,
    /// `$4`, a bigint: how many milliseconds the lock stays held if no renewal gets a reply.
    pub remaining_ms: i64,
}
