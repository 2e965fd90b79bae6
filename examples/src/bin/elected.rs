//! A replica of a web service. The elected one does the work, and the others forward to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Router, serve};
use leasehold::{Election, Leader, Leadership};
use leasehold_examples::settings::setting;
use leasehold_examples::signals::terminated;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait for the reply of the leader.
const FORWARD_MAX: Duration = Duration::from_secs(5);

/// What the handlers and the tasks of this replica share.
struct Replica {
    address: String,
    election: Election,
    client: reqwest::Client,
    /// The leadership of this replica; `None` while another one leads.
    leadership: watch::Sender<Option<Arc<Leadership>>>,
    /// The leader, whichever replica it is.
    leader: watch::Sender<Option<Leader>>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let locks = leasehold::open(&setting::<String>("LEASEHOLD_STORE")?).await?;
    let listener = TcpListener::bind(setting::<String>("LISTEN")?).await?;
    let replica = Arc::new(Replica {
        address: listener.local_addr()?.to_string(),
        election: locks.election("replicas"),
        client: reqwest::Client::builder().timeout(FORWARD_MAX).build()?,
        leadership: watch::Sender::new(None),
        leader: watch::Sender::new(None),
    });

    let campaign = tokio::spawn(campaign(Arc::clone(&replica)));
    let observe = tokio::spawn(observe(Arc::clone(&replica)));
    let routes = Router::new()
        .route("/ready", get(ready))
        .route("/work", post(work_or_forward))
        .route("/leader/work", post(work))
        .with_state(Arc::clone(&replica));
    println!("listening on {}", replica.address);
    serve(listener, routes)
        .with_graceful_shutdown(terminated())
        .await?;

    observe.abort();
    campaign.abort();
    // The abort of a task takes effect at its next await. The leadership ends with the task.
    let _is_cancelled = campaign.await;
    replica.leadership.send_replace(None);
    Ok(())
}

/// Campaigns again and again, and leads until the leadership is lost.
async fn campaign(replica: Arc<Replica>) {
    loop {
        match replica.election.campaign(&replica.address).await {
            Ok(leadership) => replica.lead(Arc::new(leadership)).await,
            Err(error) => {
                eprintln!("{error}");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Keeps the address of the leader up to date.
async fn observe(replica: Arc<Replica>) {
    loop {
        let Err(error) = replica.follow_leaders().await;
        eprintln!("{error}");
        replica.leader.send_replace(None);
        sleep(PAUSE).await;
    }
}

impl Replica {
    async fn lead(&self, leadership: Arc<Leadership>) {
        self.leadership.send_replace(Some(Arc::clone(&leadership)));
        let reason = leadership.lost().await;
        eprintln!("the leadership is lost: {reason}");
        self.leadership.send_replace(None);
    }

    async fn follow_leaders(&self) -> leasehold::Result<std::convert::Infallible> {
        let mut observer = self.election.observe().await?;
        loop {
            let leader = observer.next().await?;
            self.leader.send_replace(leader);
        }
    }

    /// Does the work if this replica leads.
    async fn work(&self) -> Option<String> {
        let leadership = self.leadership.borrow().clone()?;
        // A database would receive the token with each write.
        let work = async { format!("{} {}", self.address, leadership.token()) };
        leadership.while_held(work).await.ok()
    }

    async fn forward(&self, leader: &Leader) -> reqwest::Result<String> {
        let url = format!("http://{}/leader/work", leader.address());
        let reply = self.client.post(url).send().await?;
        reply.error_for_status()?.text().await
    }
}

/// This replica can serve a request if it knows a leader.
async fn ready(State(replica): State<Arc<Replica>>) -> Result<String, StatusCode> {
    let leader = replica
        .leader
        .borrow()
        .clone()
        .ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(leader.address().to_owned())
}

async fn work_or_forward(State(replica): State<Arc<Replica>>) -> Result<String, StatusCode> {
    if let Some(done) = replica.work().await {
        return Ok(done);
    }

    let leader = replica
        .leader
        .borrow()
        .clone()
        .ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let forwarded = replica.forward(&leader).await;
    forwarded.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// A forwarded request is not forwarded again.
async fn work(State(replica): State<Arc<Replica>>) -> Result<String, StatusCode> {
    let done = replica.work().await;
    done.ok_or(StatusCode::SERVICE_UNAVAILABLE)
}
