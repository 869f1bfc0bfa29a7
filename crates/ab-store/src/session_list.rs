//! Lists of sessions: filters, pages, and what clients see of each session in addition to its
//! stored body.

use std::collections::HashMap;

use ab_api::{Event, PageRequest, Session, SessionActivity, SessionId, SessionStatus};
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::error::StoreError;
use crate::record::{EventRecord, signed, unsigned};
use crate::sessions::record;
use crate::store::Store;

/// Number of recent events that are shown with an active session.
const RECENT_EVENTS: i64 = 3;
/// The condition for sessions that have a pending approval.
const WAITS: &str =
    "id IN (SELECT session FROM approvals WHERE status = 'pending' AND session IS NOT NULL)";

/// Filters a list of sessions. The default matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only sessions with one of these statuses. If empty, sessions with any status.
    pub statuses: Vec<SessionStatus>,
    pub tenant: Option<String>,
    pub project: Option<String>,
    pub agent: Option<String>,
    pub repo: Option<String>,
    /// Only sessions with this label. A pair of name and value.
    pub label: Option<(String, String)>,
    /// Only sessions of the task whose first session this is.
    pub task: Option<SessionId>,
    pub group: Option<SessionGroup>,
}

/// A group of sessions. Each session belongs to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionGroup {
    /// Sessions that wait for the decision of a person.
    Waiting,
    /// Other sessions that have not ended.
    AtWork,
    Ended,
}

impl SessionGroup {
    /// The statuses of sessions in this group.
    fn statuses(self) -> impl Iterator<Item = SessionStatus> {
        SessionStatus::ALL.into_iter().filter(move |status| match self {
            Self::Waiting => *status == SessionStatus::Running,
            Self::AtWork => !status.is_terminal(),
            Self::Ended => status.is_terminal(),
        })
    }
}

impl Store {
    /// A page of the sessions that match the filter, newest first, and the total number of matches.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_sessions(
        &self,
        filter: &SessionFilter,
        page: PageRequest,
    ) -> Result<(Vec<Session>, u64), StoreError> {
        let mut count = QueryBuilder::<Sqlite>::new("SELECT COUNT(*) FROM sessions");
        filter.push_to(&mut count);
        let total: i64 = count.build_query_scalar().fetch_one(self.pool()).await?;
        // The page is selected by id first, so that only the bodies of this page are read and
        // sorted.
        let mut list = QueryBuilder::<Sqlite>::new(
            "SELECT body, progress FROM sessions WHERE id IN (SELECT id FROM sessions",
        );
        filter.push_to(&mut list);
        list.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(page.per_page()));
        list.push(" OFFSET ").push_bind(signed(page.offset())).push(") ORDER BY id DESC");
        let rows = list.build().fetch_all(self.pool()).await?;
        let sessions = rows.iter().map(|row| Ok(record(row)?.session));
        let sessions = sessions.collect::<Result<Vec<Session>, StoreError>>()?;
        Ok((self.complete(sessions).await?, unsigned(total)))
    }

    /// Adds the recent events and open approvals of sessions that have not ended. Ended sessions have neither.
    pub(crate) async fn complete(
        &self,
        mut sessions: Vec<Session>,
    ) -> Result<Vec<Session>, StoreError> {
        let active = sessions.iter().filter(|session| !session.status.is_terminal());
        let active: Vec<String> = active.map(|session| session.id.to_string()).collect();
        if active.is_empty() {
            return Ok(sessions);
        }
        let mut recent = self.recent_events(&active).await?;
        let open = self.open_approvals(&active).await?;
        for session in &mut sessions {
            let id = session.id.to_string();
            session.recent_events = recent.remove(&id).unwrap_or_default();
            session.open_approvals = open.get(&id).copied().unwrap_or_default();
            let waits = [SessionActivity::Working, SessionActivity::Idle];
            if session.open_approvals > 0
                && session.activity.is_some_and(|activity| waits.contains(&activity))
            {
                session.activity = Some(SessionActivity::AwaitingApproval);
            }
        }
        Ok(sessions)
    }

    /// The last events of each of these sessions, in order.
    async fn recent_events(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, Vec<Event>>, StoreError> {
        // The numbers of a stream have no gaps, so the last events can be selected by number.
        let mut query = QueryBuilder::<Sqlite>::new(
            "SELECT events.position, events.stream, events.seq, events.at, events.kind, events.body \
             FROM sessions JOIN events ON events.stream = sessions.id \
             AND events.seq > (SELECT MAX(seq) FROM events WHERE stream = sessions.id) - ",
        );
        query.push_bind(RECENT_EVENTS).push(" WHERE sessions.id IN (");
        push_list(&mut query, ids);
        query.push(") ORDER BY events.stream, events.seq");
        let records: Vec<EventRecord> = query.build_query_as().fetch_all(self.pool()).await?;
        let mut events = HashMap::<String, Vec<Event>>::new();
        for record in &records {
            events.entry(record.stream.to_string()).or_default().push(record.parse_event()?);
        }
        Ok(events)
    }

    /// For each of these sessions that has pending approvals, the number of them.
    async fn open_approvals(&self, ids: &[String]) -> Result<HashMap<String, u32>, StoreError> {
        let mut query = QueryBuilder::<Sqlite>::new(
            "SELECT session, COUNT(*) AS open FROM approvals WHERE status = 'pending' AND session IN (",
        );
        push_list(&mut query, ids);
        query.push(") GROUP BY session");
        let rows = query.build().fetch_all(self.pool()).await?;
        let mut counts = HashMap::new();
        for row in &rows {
            let open: i64 = row.try_get("open")?;
            counts.insert(row.try_get("session")?, u32::try_from(open).unwrap_or(u32::MAX));
        }
        Ok(counts)
    }
}

impl SessionFilter {
    /// Adds a condition for each field that is set. Unset fields add nothing, so that the database
    /// can use an index.
    fn push_to(&self, query: &mut QueryBuilder<Sqlite>) {
        let mut joint = " WHERE ";
        if !self.statuses.is_empty() {
            query.push(joint).push("status IN (");
            let names: Vec<_> = self.statuses.iter().map(|it| it.as_str().to_owned()).collect();
            push_list(query, &names);
            query.push(")");
            joint = " AND ";
        }
        let task = self.task.map(|id| id.to_string());
        let columns = [
            ("task", &task),
            ("tenant", &self.tenant),
            ("project", &self.project),
            ("agent", &self.agent),
            ("repo", &self.repo),
        ];
        for (column, value) in columns {
            if let Some(value) = value {
                query.push(joint).push(column).push(" = ").push_bind(value.clone());
                joint = " AND ";
            }
        }
        if let Some((name, value)) = &self.label {
            query.push(joint).push("id IN (SELECT session FROM session_labels WHERE name = ");
            query.push_bind(name.clone()).push(" AND value = ").push_bind(value.clone());
            query.push(")");
            joint = " AND ";
        }
        if let Some(group) = self.group {
            query.push(joint).push("status IN (");
            let names: Vec<_> = group.statuses().map(|it| it.as_str().to_owned()).collect();
            push_list(query, &names);
            query.push(")");
            match group {
                SessionGroup::Waiting => {
                    query.push(" AND ").push(WAITS);
                }
                SessionGroup::AtWork => {
                    let running = SessionStatus::Running.as_str().to_owned();
                    query.push(" AND NOT (status = ").push_bind(running);
                    query.push(" AND ").push(WAITS).push(")");
                }
                SessionGroup::Ended => {}
            }
        }
    }
}

/// Adds values, separated by commas.
fn push_list(query: &mut QueryBuilder<Sqlite>, values: &[String]) {
    let mut list = query.separated(", ");
    for value in values {
        list.push_bind(value.clone());
    }
}
