-- What may be spent. schema_min stays 6: an older program never looks at these tables. While one runs beside a newer one
-- its turns are bounded by no budget.
UPDATE meta SET value = '11' WHERE name = 'schema';

-- budgets: what an owner may spend, and what was spent in the period that began at `period_start`. Amounts are millionths
-- of a dollar or tokens. `subject`: the session or schedule that it is about, '' for a day or a month. `extra` was allowed
-- on top, for this period. `spent` includes `estimated`. `reserved` is the sum of the reservations of this period.
CREATE TABLE budgets (
  budget_no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('session','day','month','schedule')),
  unit TEXT NOT NULL CHECK (unit IN ('usd','tokens')),
  subject TEXT NOT NULL,
  session_no INTEGER REFERENCES sessions ON DELETE CASCADE,
  schedule_no INTEGER REFERENCES schedules ON DELETE CASCADE,
  amount INTEGER NOT NULL CHECK (amount >= 0),
  timezone TEXT NOT NULL,
  is_default INTEGER NOT NULL,
  period_start INTEGER NOT NULL,
  extra INTEGER NOT NULL DEFAULT 0,
  spent INTEGER NOT NULL DEFAULT 0,
  estimated INTEGER NOT NULL DEFAULT 0,
  reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),
  unpriced_tokens INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  UNIQUE (owner, scope, unit, subject),
  CHECK ((scope = 'session') = (session_no IS NOT NULL) AND (scope = 'schedule') = (schedule_no IS NOT NULL))
);
CREATE INDEX budgets_of_session ON budgets (session_no) WHERE session_no IS NOT NULL;
CREATE INDEX budgets_of_schedule ON budgets (schedule_no) WHERE schedule_no IS NOT NULL;

-- reservations: a model call that is under way, in each budget that applies to it. The row goes when the usage of the call
-- is known. One that stays behind belongs to a worker that has gone: its amount counts as spent.
CREATE TABLE reservations (
  turn_no INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE,
  epoch INTEGER NOT NULL,
  step INTEGER NOT NULL,
  call TEXT NOT NULL,
  budget_no INTEGER NOT NULL REFERENCES budgets ON DELETE CASCADE,
  period_start INTEGER NOT NULL,
  amount INTEGER NOT NULL,
  PRIMARY KEY (turn_no, epoch, step, call, budget_no)
) WITHOUT ROWID;
CREATE INDEX reservations_of_budget ON reservations (budget_no);
CREATE INDEX asks_about_budgets ON asks (created_at) WHERE answer IS NULL AND topic = 'budget';
