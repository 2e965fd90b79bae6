//! Calls of the functions of the schema.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error as PostgresError, Row, Statement};

use super::connection::Connection;
use super::reply_error::store_error;
use super::schema;
use leasehold_core::Result;

/// A function of the schema, as one connection calls it.
#[derive(Debug)]
pub(super) struct Function {
    text: String,
    types: &'static [Type],
    /// `None` behind a pooler, where another client may get the connection that knows the statement.
    prepared: Option<Statement>,
}

impl Function {
    /// Prepares the call of a function; `name` is written for the schema `leasehold`.
    pub(super) async fn prepare(
        connection: &Connection,
        (schema, name): (&str, &str),
        types: &'static [Type],
    ) -> Result<Self> {
        let places: Vec<String> = (1..=types.len()).map(|at| format!("${at}")).collect();
        let text = format!("SELECT * FROM {name}({})", places.join(", "));
        let text = schema::named(schema, &text);
        let prepared = if connection.is_direct {
            let preparing = connection.client.prepare_typed(&text, types);
            let prepared = preparing.await.map_err(|error| {
                if schema::is_missing(&error) {
                    return schema::dropped(error);
                }
                store_error(error)
            })?;
            Some(prepared)
        } else {
            None
        };
        Ok(Self {
            text,
            types,
            prepared,
        })
    }

    /// Calls the function in a transaction of its own.
    pub(super) async fn call(
        &self,
        client: &Client,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PostgresError> {
        if let Some(statement) = &self.prepared {
            return client.query(statement, arguments).await;
        }
        let typed: Vec<_> = arguments
            .iter()
            .copied()
            .zip(self.types.iter().cloned())
            .collect();
        client.query_typed(&self.text, &typed).await
    }
}
