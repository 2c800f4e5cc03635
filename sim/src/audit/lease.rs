//! What is known of one message and one consumer group.

/// A deadline that a request set, or may have set, between two steps.
#[derive(Debug)]
struct Promise {
    asked: u64,
    /// `None`: not answered yet.
    answered: Option<u64>,
    /// It was answered that it is so.
    sure: bool,
    /// By the broker's clock. As long as it is not answered: the earliest it can be.
    deadline: i64,
}

/// One delivery as the broker answered it.
#[derive(Debug)]
pub struct Delivery {
    /// Its pop time: what names it.
    pub pop_time: i64,
    /// For how long it was asked for, milliseconds.
    pub popped_for: i64,
    /// Which delivery it is, from 1.
    pub attempt: i32,
    /// The client it was for.
    pub holder: Option<String>,
    promises: Vec<Promise>,
    /// The true time of what was last answered: that it is alive.
    alive: i64,
    /// Somebody asked that the delivery is not to be counted.
    uncounted: bool,
}

/// What is known of a message for a group.
#[derive(Debug, Default)]
pub struct Story {
    /// The newest delivery.
    pub last: Option<Delivery>,
    /// Pop times for which an ack reached the broker.
    ack_asked: Vec<i64>,
    /// An ack was answered OK.
    pub acked: bool,
    /// An ack that did nothing was answered OK.
    pub hollow: bool,
    /// A forward to the dead letters reached the broker, and whether it was answered OK.
    forwarded: Option<bool>,
}

impl Story {
    /// The message is done for the group, or may be.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let newest = self.last.as_ref().map_or(i64::MIN, |last| last.pop_time);
        self.acked || self.forwarded.is_some() || self.ack_asked.iter().any(|pop_time| *pop_time >= newest)
    }

    /// What was not answered until now never will be.
    pub fn cut(&mut self, step: u64) {
        for promise in self.last.iter_mut().flat_map(|last| &mut last.promises) {
            promise.answered.get_or_insert(step);
        }
    }

    /// The broker answers a pop. What is wrong with that.
    pub fn delivered(
        &mut self,
        asked: u64,
        step: u64,
        new: &Popped<'_>,
        excuse: impl FnOnce(&str, i64) -> i64,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(last) = &self.last {
            if new.pop_time == last.pop_time {
                return vec![format!("the same delivery {} was given out twice", new.pop_time)];
            }
            if new.pop_time < last.pop_time {
                // An answer that took long; the delivery is over already.
                return wrong;
            }
            let earliest = last.earliest_end();
            let silent_until = last.holder.as_deref().map_or(i64::MAX, |holder| excuse(holder, last.alive));
            if new.pop_time < earliest.min(silent_until) {
                wrong.push(format!(
                    "given to {:?} at {} although {:?} holds it until {earliest} at least (delivery {})",
                    new.holder, new.pop_time, last.holder, last.pop_time
                ));
            }
            let least = last.attempt + i32::from(!last.uncounted);
            if new.attempt < least {
                wrong.push(format!("delivery {} of the message is called {}", least, new.attempt));
            }
        }
        if self.acked {
            wrong.push(format!("given to {:?} again after its ack was answered OK", new.holder));
        }
        if self.forwarded == Some(true) {
            wrong.push(format!("given to {:?} again after it was forwarded to the dead letters", new.holder));
        }
        let deadline = new.pop_time + new.invisible;
        self.last = Some(Delivery {
            pop_time: new.pop_time,
            popped_for: new.wanted_ms,
            attempt: new.attempt,
            holder: new.holder.map(str::to_owned),
            promises: vec![Promise { asked, answered: Some(step), sure: true, deadline }],
            alive: new.since,
            uncounted: false,
        });
        wrong
    }

    /// A change reached the broker.
    pub fn change_asked(&mut self, step: u64, pop_time: i64, earliest: i64, suspend: bool) {
        if let Some(last) = self.last.as_mut().filter(|last| last.pop_time == pop_time) {
            last.uncounted |= suspend;
            last.promises.push(Promise { asked: step, answered: None, sure: false, deadline: earliest });
        }
    }

    /// The broker answers a change that reached it at the true time `at`: with a deadline, or that nothing was changed. An answer that says
    /// neither is none.
    pub fn change_answered(&mut self, (asked, step, at): (u64, u64, i64), pop_time: i64, deadline: Option<i64>) {
        let Some(last) = self.last.as_mut().filter(|last| last.pop_time == pop_time) else { return };
        match deadline {
            None => last.promises.retain(|promise| promise.asked != asked || promise.sure),
            Some(deadline) => {
                if let Some(promise) = last.promises.iter_mut().find(|promise| promise.asked == asked) {
                    (promise.answered, promise.sure, promise.deadline) = (Some(step), true, deadline);
                    last.alive = at;
                }
            }
        }
    }

    /// For how long a delivery was asked for.
    #[must_use]
    pub fn popped_for(&self, pop_time: i64) -> Option<i64> {
        self.last.as_ref().filter(|last| last.pop_time == pop_time).map(|last| last.popped_for)
    }

    /// An ack reached the broker.
    pub fn ack_asked(&mut self, pop_time: i64) {
        self.ack_asked.push(pop_time);
    }

    /// The broker answers an ack with OK. What is wrong with that.
    pub fn ack_answered(&mut self, pop_time: i64, most_attempts: i32) -> Option<String> {
        self.acked = true;
        let last = self.last.as_ref()?;
        let newer_acked = self.ack_asked.iter().any(|asked| *asked >= last.pop_time);
        let may_be_dead = self.forwarded.is_some() || last.attempt >= most_attempts;
        (pop_time < last.pop_time && !newer_acked && !may_be_dead).then(|| {
            format!("OK for the past delivery {pop_time} although {:?} holds delivery {}", last.holder, last.pop_time)
        })
    }

    /// A forward reached the broker.
    pub fn forward_asked(&mut self) {
        self.forwarded.get_or_insert(false);
    }

    /// The broker answers a forward with OK.
    pub fn forward_answered(&mut self) {
        self.forwarded = Some(true);
    }

    /// Whether a change of this delivery was answered with OK since that step, or is under way.
    #[must_use]
    pub fn changed_since(&self, asked_after: u64, pop_time: i64) -> bool {
        self.last.as_ref().is_none_or(|last| {
            last.pop_time != pop_time || last.promises.iter().any(|promise| promise.asked > asked_after && promise.sure)
        })
    }

    /// Whether an ack was answered with OK, or the message may be dead.
    #[must_use]
    pub fn may_be_over(&self, most_attempts: i32) -> bool {
        self.acked
            || self.hollow
            || self.forwarded.is_some()
            || self.last.as_ref().is_none_or(|last| last.attempt >= most_attempts)
    }
}

impl Delivery {
    /// The earliest deadline that can hold now: of all that may have been the last word.
    #[must_use]
    pub fn earliest_end(&self) -> i64 {
        let superseded = |promise: &Promise| {
            let ended = promise.answered.unwrap_or(u64::MAX);
            self.promises.iter().any(|later| later.sure && later.asked > ended)
        };
        self.promises
            .iter()
            .filter(|promise| !superseded(promise))
            .map(|promise| promise.deadline)
            .min()
            .unwrap_or(i64::MAX)
    }
}

/// A message in the answer to a pop.
#[derive(Debug)]
pub struct Popped<'a> {
    /// Its pop time.
    pub pop_time: i64,
    /// Its invisible duration, from its pop time on.
    pub invisible: i64,
    /// The invisible duration that was asked for.
    pub wanted_ms: i64,
    /// Which delivery it is, from 1.
    pub attempt: i32,
    /// The client that asked.
    pub holder: Option<&'a str>,
    /// The true time at which its lease began, or a little before.
    pub since: i64,
}
