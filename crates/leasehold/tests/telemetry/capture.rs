//! A subscriber that records all spans and events of this process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A span that has been closed, or an event.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The name of a span, the message of an event.
    pub(crate) name: String,
    pub(crate) target: &'static str,
    pub(crate) level: Level,
    /// The names of all fields that it may have.
    pub(crate) declared: Vec<&'static str>,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// The name of the span around it.
    pub(crate) parent: Option<&'static str>,
}

impl Recorded {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Starts the recording of this process, if it has not been started.
pub(crate) fn start() {
    LazyLock::force(&STARTED);
}

/// Everything that was recorded about the lock `name`, in order.
pub(crate) fn of_lock(name: &str) -> Vec<Recorded> {
    let mut all = everything();
    all.retain(|one| one.field("name") == name);
    all
}

pub(crate) fn everything() -> Vec<Recorded> {
    RECORDED.lock().unwrap().clone()
}

static RECORDED: Mutex<Vec<Recorded>> = Mutex::new(Vec::new());
static STARTED: LazyLock<()> = LazyLock::new(|| {
    let subscriber = tracing_subscriber::registry().with(Recorder);
    tracing::subscriber::set_global_default(subscriber).expect("it is the only one");
});

struct Recorder;

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let span = context.span(id).expect("it is new");
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("it is open");
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let parent = context.event_span(event).map(|span| span.name());
        note(event.metadata(), message, fields, parent);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it is being closed");
        let fields = span.extensions_mut().remove().unwrap_or_default();
        let parent = span.parent().map(|parent| parent.name());
        note(span.metadata(), span.name().to_owned(), fields, parent);
    }
}

fn note(
    metadata: &'static Metadata<'static>,
    name: String,
    fields: Fields,
    parent: Option<&'static str>,
) {
    let declared = metadata.fields().iter().map(|field| field.name());
    RECORDED.lock().unwrap().push(Recorded {
        name,
        target: metadata.target(),
        level: *metadata.level(),
        declared: declared.filter(|name| *name != "message").collect(),
        fields: fields.0,
        parent,
    });
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
