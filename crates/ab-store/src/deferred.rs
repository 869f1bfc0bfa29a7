//! Statements whose results are not needed. They are collected and sent to the database together.
//!
//! sqlx runs SQLite in a separate thread. Passing a statement to this thread, and its result back,
//! costs more time than most of our statements. SQLite can run any number of statements from one
//! text, so several statements share this cost.

use std::fmt::Write;

use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteArguments;

use crate::error::StoreError;

/// Maximum number of statements in one text. Texts are cached with their compiled statements, so
/// there must not be too many different texts.
const MAX_TOGETHER: usize = 16;

/// A parameter of a deferred statement.
pub(crate) enum SqlValue {
    Text(String),
    Integer(i64),
}

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

struct DeferredStatement {
    sql: &'static str,
    values: Vec<SqlValue>,
}

/// The statements that are not executed yet, in order.
#[derive(Default)]
pub(crate) struct DeferredStatements {
    statements: Vec<DeferredStatement>,
}

impl DeferredStatements {
    /// Adds a statement with the values of `$1`, `$2` and so on. Returns `true` if the caller
    /// should now execute the collected statements.
    pub(crate) fn add(&mut self, sql: &'static str, values: Vec<SqlValue>) -> bool {
        self.statements.push(DeferredStatement { sql, values });
        self.statements.len() >= MAX_TOGETHER
    }

    /// Whether `sql` is the first of the statements that are not executed yet.
    pub(crate) fn starts_with(&self, sql: &str) -> bool {
        self.statements.first().is_some_and(|statement| statement.sql == sql)
    }

    pub(crate) fn clear(&mut self) {
        self.statements.clear();
    }

    /// Executes the statements in order and stops at the first that fails. The list is empty
    /// afterwards, even after a failure.
    pub(crate) async fn execute(
        &mut self,
        connection: &mut SqliteConnection,
    ) -> Result<(), StoreError> {
        if self.statements.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        let mut arguments = SqliteArguments::default();
        let mut count = 0;
        for DeferredStatement { sql, values } in self.statements.drain(..) {
            push_renumbered(&mut text, sql, count);
            count += values.len();
            for value in values {
                let added = match value {
                    SqlValue::Text(text) => sqlx::Arguments::add(&mut arguments, text),
                    SqlValue::Integer(number) => sqlx::Arguments::add(&mut arguments, number),
                };
                added.map_err(sqlx::Error::Encode)?;
            }
        }
        // This is safe, because the text consists only of statements that are constants of the
        // program. All values are parameters.
        let text = sqlx::AssertSqlSafe(text);
        sqlx::query_with(text, arguments).execute(connection).await?;
        Ok(())
    }
}

/// Appends a statement to a text that already has `before` parameters. The parameters are
/// renumbered, because sqlx counts them over the whole text.
fn push_renumbered(text: &mut String, sql: &str, before: usize) {
    let mut parts = sql.split('$');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let number: usize = number.parse().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(text, "${}{rest}", number + before);
    }
    text.push_str(";\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_in_the_whole_text() {
        let mut text = String::new();
        push_renumbered(&mut text, "BEGIN", 0);
        push_renumbered(&mut text, "UPDATE a SET b = $2 WHERE c = $1", 0);
        push_renumbered(&mut text, "INSERT INTO a VALUES ($1, $12, $2)", 2);
        let expect =
            "BEGIN;\nUPDATE a SET b = $2 WHERE c = $1;\nINSERT INTO a VALUES ($3, $14, $4);\n";
        assert_eq!(text, expect);
    }
}
