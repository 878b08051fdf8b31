/* Made from the server's description by scripts/types.mjs. Not to be edited. */

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Abilities
         * @description What a model can do; ``None`` where nobody knows.
         */
        Abilities: {
            /** @default true */
            tools?: boolean;
            /** @default false */
            images?: boolean;
            /** @default false */
            reasoning?: boolean;
            /** @default false */
            continues?: boolean;
            /** @default null */
            context_tokens?: number | null;
            /** @default null */
            output_tokens?: number | null;
            /** @default false */
            is_small?: boolean;
            /** @default false */
            is_brief?: boolean;
        };
        /** Accepted */
        Accepted: {
            turn: components["schemas"]["Turn"];
            cursor: number;
            /** @default false */
            is_repeat?: boolean;
            /** @default false */
            is_steering?: boolean;
        };
        /**
         * ApprovalRequested
         * @description An approval holds for one call: its id and the digest of its arguments.
         */
        ApprovalRequested: {
            /** @enum {unknown} */
            kind: "approval.requested";
            ask_id: string;
            call_id: string;
            name: string;
            arguments: string;
            digest: string;
            reason: string;
            /** @default  */
            label?: string;
            /**
             * @default [
             *       "once",
             *       "session",
             *       "always",
             *       "deny"
             *     ]
             */
            options?: components["schemas"]["Decision"][];
        };
        /**
         * ApprovalResolved
         * @description ``arguments``: those that the user put in place of the asked ones; the call runs with them.
         */
        ApprovalResolved: {
            /** @enum {unknown} */
            kind: "approval.resolved";
            ask_id: string;
            call_id: string;
            decision: components["schemas"]["Decision"];
            by: string;
            /** @default null */
            arguments?: string | null;
        };
        /**
         * Ask
         * @description An open or answered approval or question.
         */
        Ask: {
            id: string;
            session_id: string;
            turn_id: string;
            topic: components["schemas"]["AskTopic"];
            created_at: number;
            /** @default null */
            call_id?: string | null;
            /** @default  */
            text?: string;
            /** @default [] */
            choices?: string[];
            /** @default  */
            name?: string;
            /** @default  */
            arguments?: string;
            /** @default  */
            digest?: string;
            /** @default  */
            label?: string;
            /** @default null */
            answer?: string | null;
            /** @default null */
            by?: string | null;
            /** @default null */
            answered_at?: number | null;
            /** @default null */
            expires_at?: number | null;
            /** @default  */
            title?: string;
            /** @default null */
            edited?: string | null;
        };
        /**
         * AskTopic
         * @description What an ask is about.
         * @enum {unknown}
         */
        AskTopic: "approval" | "doubt" | "instructions" | "limit" | "question" | "repeat";
        /** Attachment */
        Attachment: {
            /** @enum {unknown} */
            type: "attachment";
            file_id: string;
            name: string;
            media_type: string;
            size: number;
        };
        /**
         * Bar
         * @description One row of a turn's timeline: a model call, a tool, a wait, or the server being down.
         */
        Bar: {
            kind: components["schemas"]["BarKind"];
            label: string;
            start_at: number;
            /** @default null */
            end_at?: number | null;
            /** @default done */
            state?: components["schemas"]["BarState"];
            /** @default null */
            step?: number | null;
            /** @default null */
            call_id?: string | null;
            /** @default null */
            usage?: components["schemas"]["Usage"] | null;
            /** @default null */
            first_token_at?: number | null;
            /** @default null */
            thought_until?: number | null;
            /** @default false */
            missed_cache?: boolean;
            /** @default  */
            finish?: string;
        };
        /**
         * BarKind
         * @description What a row of the timeline shows.
         * @enum {unknown}
         */
        BarKind: "down" | "model" | "tool" | "wait";
        /**
         * BarState
         * @enum {unknown}
         */
        BarState: "abandoned" | "done" | "failed" | "running" | "unknown";
        /**
         * Call
         * @description A tool call the model wished for. ``arguments`` is the JSON text as the model wrote it.
         */
        Call: {
            /** @enum {unknown} */
            type: "call";
            id: string;
            name: string;
            arguments: string;
        };
        /**
         * ClaimReason
         * @description Why a turn can be claimed.
         * @enum {unknown}
         */
        ClaimReason: "answered" | "crash" | "handed_over" | "manual" | "new";
        /** Counts */
        Counts: {
            sessions: number;
            archived: number;
            asks: number;
        };
        /**
         * Decision
         * @description The answer to an approval.
         * @enum {unknown}
         */
        Decision: "always" | "deny" | "expired" | "once" | "session" | "trust";
        /**
         * Defaults
         * @description What ``config.toml`` says: it holds where nothing was chosen.
         *
         *         Null: no limit; for titles, the model that answered.
         */
        Defaults: {
            title_model: string | null;
            fallback_models: string[];
            steps_max: number;
            minutes_max: number;
            tokens_max: number | null;
            cost_usd_max: number | null;
        };
        /**
         * Failure
         * @description Why a turn failed or was interrupted, in words a user can act on.
         */
        Failure: {
            code: string;
            message: string;
            /** @default  */
            hint?: string;
            /** @default null */
            remedy?: components["schemas"]["Remedy"] | null;
        };
        /**
         * FinishReason
         * @description Why a model call ended.
         * @enum {unknown}
         */
        FinishReason: "calls" | "filtered" | "length" | "stop";
        /**
         * Hit
         * @description A message that search found. ``marks`` are (start, end) inside ``excerpt``.
         */
        Hit: {
            session_id: string;
            message_id: string;
            turn_id: string;
            role: string;
            title: string;
            excerpt: string;
            created_at: number;
            /** @default [] */
            marks?: [
                number,
                number
            ][];
        };
        /**
         * KeyState
         * @description A provider and whether there is a key; never the key.
         */
        KeyState: {
            name: string;
            has_key: boolean;
            /** @default null */
            source?: string | null;
            /** @default null */
            base_url?: string | null;
        };
        /**
         * ListSnapshot
         * @description The first event of the shared stream: the first page of the list, as it is now, and why nothing can
         *         be stored, if so.
         */
        ListSnapshot: {
            sessions: components["schemas"]["Session"][];
            counts: components["schemas"]["Counts"];
            /** @default null */
            cursor?: string | null;
            /** @default null */
            trouble?: components["schemas"]["Trouble"] | null;
        };
        /**
         * Me
         * @description ``way``: open (this server has no sign-in) | access (came in with its token) | cookie | token.
         */
        Me: {
            owner: string;
            way: string;
            scopes: components["schemas"]["Scope"][];
            version: string;
        };
        /** Message */
        Message: {
            id: string;
            turn_id: string;
            role: components["schemas"]["Role"];
            parts: (components["schemas"]["Text"] | components["schemas"]["Reasoning"] | components["schemas"]["Call"] | components["schemas"]["Result"] | components["schemas"]["Attachment"] | components["schemas"]["Summary"])[];
            created_at: number;
            /** @default 0 */
            ordinal?: number;
            /** @default false */
            is_steering?: boolean;
            /** @default false */
            is_recovered?: boolean;
            /** @default  */
            model?: string;
            /** @default false */
            is_imported?: boolean;
        };
        /**
         * MessageAdded
         * @description A message that entered the turn while it ran: steering.
         */
        MessageAdded: {
            /** @enum {unknown} */
            kind: "message.added";
            message: components["schemas"]["Message"];
        };
        /**
         * Messages
         * @description One page of a session. Follow its events after ``position`` and nothing is missed; to draw an
         *         active turn, replay them from ``replay_from``.
         */
        Messages: {
            messages: components["schemas"]["Message"][];
            turns: components["schemas"]["Turn"][];
            version: number;
            position: number;
            replay_from: number;
            /** @default null */
            cursor?: string | null;
        };
        /**
         * ModelLine
         * @description A model and what the page needs of its abilities at a glance.
         */
        ModelLine: {
            name: string;
            provider: string;
            state: string;
            /** @default null */
            abilities?: components["schemas"]["Abilities"] | null;
            /**
             * @default {
             *       "context_tokens": null,
             *       "input_usd": null,
             *       "output_usd": null
             *     }
             */
            prices?: components["schemas"]["PriceFacts"];
            /** @default false */
            is_default?: boolean;
            /** @default null */
            size?: number | null;
            /** @default null */
            key_source?: string | null;
            /** @default  */
            note?: string;
            /** @default true */
            can_chat?: boolean;
            /** @default false */
            is_suggested?: boolean;
            /** @default null */
            context_tokens?: number | null;
            /** @default false */
            is_small?: boolean;
        };
        /**
         * Outcome
         * @description How a tool call ended. UNKNOWN: it started and nobody knows whether it took effect.
         * @enum {unknown}
         */
        Outcome: "cancelled" | "denied" | "error" | "ok" | "unknown";
        /**
         * PriceFacts
         * @description What is publicly known about a model. Prices are dollars per million tokens.
         */
        PriceFacts: {
            /** @default null */
            context_tokens?: number | null;
            /** @default null */
            input_usd?: number | null;
            /** @default null */
            output_usd?: number | null;
        };
        /** ProfileOut */
        ProfileOut: {
            name: string;
            description: string;
            model: string | null;
            tools: string[] | null;
            network: boolean;
            sandbox: boolean;
            mcp: string[];
        };
        /**
         * Progress
         * @description Something long is under way that is neither model nor tool, e.g. a download.
         */
        Progress: {
            /** @enum {unknown} */
            kind: "progress";
            label: string;
            /** @default 0 */
            done?: number;
            /** @default null */
            total?: number | null;
        };
        /** QuestionAnswered */
        QuestionAnswered: {
            /** @enum {unknown} */
            kind: "question.answered";
            ask_id: string;
            answer: string;
            by: string;
            topic?: components["schemas"]["AskTopic"];
            /** @default null */
            call_id?: string | null;
        };
        /** QuestionAsked */
        QuestionAsked: {
            /** @enum {unknown} */
            kind: "question.asked";
            ask_id: string;
            text: string;
            /** @default [] */
            choices?: string[];
            /** @default question */
            topic?: components["schemas"]["AskTopic"];
            /** @default null */
            call_id?: string | null;
        };
        /** Reasoning */
        Reasoning: {
            /** @enum {unknown} */
            type: "reasoning";
            text: string;
            /** @default false */
            is_abandoned?: boolean;
            /** @default null */
            opaque?: unknown;
            /** @default  */
            model?: string;
        };
        /** ReasoningDelta */
        ReasoningDelta: {
            /** @enum {unknown} */
            kind: "reasoning.delta";
            step: number;
            text: string;
        };
        /**
         * Recovery
         * @description What is known about the output of an interrupted turn.
         * @enum {unknown}
         */
        Recovery: "final" | "none" | "pending" | "recovered";
        /**
         * Remedy
         * @description What most likely helps. Clients offer it as a button; new values may come, so ignore unknown ones.
         * @enum {unknown}
         */
        Remedy: "choose_model" | "open_settings" | "retry" | "sign_in";
        /** Result */
        Result: {
            /** @enum {unknown} */
            type: "result";
            call_id: string;
            name: string;
            text: string;
            /** @default ok */
            outcome?: components["schemas"]["Outcome"];
            /** @default null */
            artifact?: string | null;
            /** @default null */
            display?: unknown;
            /** @default null */
            duration_ms?: number | null;
            /** @default false */
            is_untrusted?: boolean;
            /** @default null */
            arguments?: string | null;
            /** @default null */
            decision?: components["schemas"]["Decision"] | null;
            /** @default null */
            output?: string | null;
        };
        /**
         * Role
         * @enum {unknown}
         */
        Role: "assistant" | "summary" | "tool" | "user";
        /**
         * Rule
         * @description A stored "always", for GET and DELETE /api/policy.
         */
        Rule: {
            id: string;
            key: string;
            tool: string;
            label: string;
            created_at: number;
            /** @default  */
            covers?: string;
        };
        /**
         * Rules
         * @description Rules cover all sessions; trust covers one session.
         */
        Rules: {
            rules: components["schemas"]["Rule"][];
            trusted: components["schemas"]["TrustedSession"][];
        };
        /**
         * Sandboxed
         * @description ``level``: full | reduced | none. ``hint``: what to do about it, if something can be done.
         */
        Sandboxed: {
            is_on: boolean;
            level: string;
            detail: string;
            /** @default  */
            hint?: string;
        };
        /**
         * Scope
         * @enum {unknown}
         */
        Scope: "admin" | "approve" | "chat" | "read";
        /**
         * ServerHealth
         * @description The few figures of ``/metrics`` that a person asks for.
         */
        ServerHealth: {
            status: components["schemas"]["ServerStatus"];
            version: string;
            /** @default  */
            problem?: string;
            /** @default  */
            hint?: string;
            turns_running: number;
            turns_resumed: number;
            turns_interrupted: number;
            turns: number;
            asks_open: number;
            sessions: number;
            messages: number;
            streams_open: number;
            commit_ms_p50: number | null;
            commit_ms_p99: number | null;
        };
        /** ServerOut */
        ServerOut: {
            name: string;
            state: string;
            /** @default  */
            detail?: string;
            /** @default [] */
            tools?: string[];
            /** @default [] */
            untrusted?: string[];
            /** @default [] */
            texts?: components["schemas"]["Untrusted"][];
            /** @default false */
            is_connected?: boolean;
        };
        /**
         * ServerStatus
         * @enum {unknown}
         */
        ServerStatus: "failing" | "ready" | "stopping";
        /**
         * Session
         * @description ``version`` grows with the transcript and the settings, ``position`` with each event.
         */
        Session: {
            id: string;
            owner: string;
            version: number;
            position: number;
            created_at: number;
            updated_at: number;
            /** @default  */
            title?: string;
            /** @default false */
            is_title_given?: boolean;
            /** @default  */
            key?: string;
            /** @default null */
            head?: string | null;
            /** @default null */
            redo_to?: string | null;
            /** @default false */
            pinned?: boolean;
            /** @default false */
            archived?: boolean;
            /** @default false */
            private?: boolean;
            /** @default [] */
            tags?: string[];
            /** @default null */
            project?: string | null;
            /** @default null */
            profile?: string | null;
            /** @default null */
            model?: string | null;
            /** @default null */
            active_turn?: string | null;
            /** @default null */
            active_state?: components["schemas"]["TurnState"] | null;
            /** @default null */
            last_state?: components["schemas"]["TurnState"] | null;
            /** @default 0 */
            queued?: number;
            /** @default 0 */
            asks?: number;
            /** @default false */
            is_unread?: boolean;
            /** @default 0 */
            messages?: number;
            /** @default  */
            preview?: string;
            /** @default 0 */
            transcript_version?: number;
        };
        /**
         * SessionChanged
         * @description The transcript or the settings changed; ``what`` says how, ``head`` where it now ends.
         */
        SessionChanged: {
            /** @enum {unknown} */
            kind: "session.changed";
            version: number;
            what: string;
            /** @default null */
            head?: string | null;
        };
        /**
         * SessionEvent
         * @description What ``data:`` holds. ``event`` is the payload; ``id:`` and ``event:`` repeat position and kind.
         */
        SessionEvent: {
            session_id: string;
            position: number;
            turn_id: string | null;
            at: number;
            event: components["schemas"]["TurnAccepted"] | components["schemas"]["TurnStarted"] | components["schemas"]["StepStarted"] | components["schemas"]["TextDelta"] | components["schemas"]["ReasoningDelta"] | components["schemas"]["StepFinished"] | components["schemas"]["StepAbandoned"] | components["schemas"]["StepUsage"] | components["schemas"]["Progress"] | components["schemas"]["ToolStarted"] | components["schemas"]["ToolOutput"] | components["schemas"]["ToolFinished"] | components["schemas"]["ApprovalRequested"] | components["schemas"]["ApprovalResolved"] | components["schemas"]["QuestionAsked"] | components["schemas"]["QuestionAnswered"] | components["schemas"]["TurnWaiting"] | components["schemas"]["TurnResumed"] | components["schemas"]["TurnCompleted"] | components["schemas"]["TurnCancelled"] | components["schemas"]["TurnFailed"] | components["schemas"]["TurnInterrupted"] | components["schemas"]["MessageAdded"] | components["schemas"]["SessionChanged"] | components["schemas"]["Snapshot"];
        };
        /**
         * SessionNews
         * @description ``kind``: session.created | deleted | busy | done | renamed | unread | changed.
         */
        SessionNews: {
            kind: string;
            session_id: string;
            /** @default null */
            session?: components["schemas"]["Session"] | null;
        };
        /**
         * Settings
         * @description What was chosen here; null: as ``default_model`` and ``defaults`` say.
         */
        Settings: {
            model: string | null;
            profile: string | null;
            title_model: string | null;
            fallback_models: string[] | null;
            steps_max: number | null;
            minutes_max: number | null;
            tokens_max: number | null;
            cost_usd_max: number | null;
            defaults: components["schemas"]["Defaults"];
            default_model: string;
            keys: components["schemas"]["KeyState"][];
            sandbox: components["schemas"]["Sandboxed"];
            version: string;
        };
        /**
         * Snapshot
         * @description Older events were pruned: read the messages again, then follow from ``position``.
         */
        Snapshot: {
            /** @enum {unknown} */
            kind: "snapshot";
            position: number;
            version: number;
        };
        /**
         * StepAbandoned
         * @description A model call died half-way. Its text stays; it goes on (``continues``) or is asked again.
         */
        StepAbandoned: {
            /** @enum {unknown} */
            kind: "step.abandoned";
            step: number;
            reason: string;
            /** @default  */
            message?: string;
            /** @default false */
            continues?: boolean;
            /** @default null */
            retry_in_ms?: number | null;
            /** @default  */
            model?: string;
        };
        /**
         * StepFinished
         * @description A model call ended properly, with these wishes. From here a resumed turn goes on.
         */
        StepFinished: {
            /** @enum {unknown} */
            kind: "step.finished";
            step: number;
            finish: components["schemas"]["FinishReason"];
            /** @default [] */
            calls?: components["schemas"]["Call"][];
            /** @default [] */
            reasoning?: components["schemas"]["Reasoning"][];
        };
        /**
         * StepStarted
         * @description A model call begins. ``step`` counts model calls of the turn from 1.
         */
        StepStarted: {
            /** @enum {unknown} */
            kind: "step.started";
            step: number;
            model: string;
            /** @default 1 */
            attempt?: number;
        };
        /** StepUsage */
        StepUsage: {
            /** @enum {unknown} */
            kind: "usage";
            step: number;
            model: string;
            usage: components["schemas"]["Usage"];
            /** @default false */
            missed_cache?: boolean;
        };
        /**
         * StoreNews
         * @description ``kind``: store.trouble (nothing can be stored, for this reason) | store.mended.
         */
        StoreNews: {
            kind: string;
            /** @default null */
            trouble?: components["schemas"]["Trouble"] | null;
        };
        /**
         * Summary
         * @description Stands for everything up to and including ``covers``.
         */
        Summary: {
            /** @enum {unknown} */
            type: "summary";
            text: string;
            covers: string;
            /** @default 0 */
            messages?: number;
            /** @default null */
            tokens_before?: number | null;
            /** @default null */
            tokens_after?: number | null;
        };
        /** Text */
        Text: {
            /** @enum {unknown} */
            type: "text";
            text: string;
            /** @default false */
            is_abandoned?: boolean;
            /** @default [] */
            cuts?: number[];
        };
        /** TextDelta */
        TextDelta: {
            /** @enum {unknown} */
            kind: "text.delta";
            step: number;
            text: string;
        };
        /**
         * TokenInfo
         * @description What may be shown of a token.
         */
        TokenInfo: {
            id: string;
            label: string;
            scopes: components["schemas"]["Scope"][];
            created_at: number;
            /** @default null */
            used_at?: number | null;
            /** @default null */
            expires_at?: number | null;
        };
        /** ToolFinished */
        ToolFinished: {
            /** @enum {unknown} */
            kind: "tool.finished";
            call_id: string;
            name: string;
            outcome: components["schemas"]["Outcome"];
            text: string;
            /** @default null */
            artifact?: string | null;
            /** @default null */
            display?: unknown;
            /** @default false */
            is_untrusted?: boolean;
        };
        /** ToolOut */
        ToolOut: {
            name: string;
            description: string;
            parameters: Record<string, never>;
            is_safe_to_repeat: boolean;
            timeout_s: number;
        };
        /** ToolOutput */
        ToolOutput: {
            /** @enum {unknown} */
            kind: "tool.output";
            call_id: string;
            text: string;
        };
        /** ToolStarted */
        ToolStarted: {
            /** @enum {unknown} */
            kind: "tool.started";
            step: number;
            call_id: string;
            name: string;
            arguments: string;
            /** @default  */
            label?: string;
            /** @default 1 */
            attempt?: number;
        };
        /** ToolsOut */
        ToolsOut: {
            tools: components["schemas"]["ToolOut"][];
            sandbox: components["schemas"]["Sandboxed"];
        };
        /**
         * Trouble
         * @description Why nothing can be stored at the moment. ``code`` is that of the error which a write meets.
         */
        Trouble: {
            code: string;
            message: string;
            hint: string;
        };
        /**
         * TrustedSession
         * @description A session whose tool calls run without asking, as far as trust covers them.
         */
        TrustedSession: {
            id: string;
            title: string;
        };
        /**
         * Turn
         * @description One user message and everything that the agent does about it.
         */
        Turn: {
            id: string;
            session_id: string;
            owner: string;
            state: components["schemas"]["TurnState"];
            epoch: number;
            created_at: number;
            /** @default message */
            kind?: components["schemas"]["TurnKind"];
            /** @default null */
            parent_id?: string | null;
            /** @default  */
            text?: string;
            /** @default null */
            model?: string | null;
            /** @default null */
            profile?: string | null;
            /** @default null */
            started_at?: number | null;
            /** @default null */
            ended_at?: number | null;
            /** @default 0 */
            attempts?: number;
            /** @default false */
            is_ready?: boolean;
            /** @default null */
            failure?: components["schemas"]["Failure"] | null;
            /** @default none */
            recovery?: components["schemas"]["Recovery"];
            /** @default null */
            recovered_at?: number | null;
            /** @default {} */
            usage?: components["schemas"]["Usage"];
            /** @default [] */
            timeline?: components["schemas"]["Bar"][];
            /** @default 1 */
            sibling?: number;
            /** @default 1 */
            siblings?: number;
            /** @default [] */
            sibling_ids?: string[];
            /** @default  */
            private_note?: string;
            /** @default 0 */
            first_position?: number;
        };
        /**
         * TurnAccepted
         * @description The user's message is durable. ``place`` counts the turns queued before it.
         */
        TurnAccepted: {
            /** @enum {unknown} */
            kind: "turn.accepted";
            message: components["schemas"]["Message"];
            /** @default 0 */
            place?: number;
        };
        /** TurnCancelled */
        TurnCancelled: {
            /** @enum {unknown} */
            kind: "turn.cancelled";
            /** @default  */
            by?: string;
            /** @default 0 */
            version?: number;
        };
        /** TurnCompleted */
        TurnCompleted: {
            /** @enum {unknown} */
            kind: "turn.completed";
            /** @default {} */
            usage?: components["schemas"]["Usage"];
            /** @default 0 */
            version?: number;
        };
        /** TurnFailed */
        TurnFailed: {
            /** @enum {unknown} */
            kind: "turn.failed";
            failure: components["schemas"]["Failure"];
            /** @default 0 */
            version?: number;
        };
        /** TurnInterrupted */
        TurnInterrupted: {
            /** @enum {unknown} */
            kind: "turn.interrupted";
            failure: components["schemas"]["Failure"];
            /** @default final */
            recovery?: string;
            /** @default 0 */
            version?: number;
        };
        /**
         * TurnKind
         * @enum {unknown}
         */
        TurnKind: "compaction" | "message";
        /** TurnResumed */
        TurnResumed: {
            /** @enum {unknown} */
            kind: "turn.resumed";
            epoch: number;
            worker: string;
            reason: components["schemas"]["ClaimReason"];
            /** @default 0 */
            attempt?: number;
            /** @default null */
            stopped_at?: number | null;
            /** @default 0 */
            step?: number;
        };
        /** TurnStarted */
        TurnStarted: {
            /** @enum {unknown} */
            kind: "turn.started";
            epoch: number;
            worker: string;
        };
        /**
         * TurnState
         * @enum {unknown}
         */
        TurnState: "cancelled" | "completed" | "failed" | "interrupted" | "queued" | "running" | "waiting";
        /** TurnWaiting */
        TurnWaiting: {
            /** @enum {unknown} */
            kind: "turn.waiting";
            asks: string[];
            /** @default null */
            worked_ms?: number | null;
        };
        /**
         * Untrusted
         * @description A text from outside that would steer the agent. The user is asked about this very content, and nothing
         *         of it is in the context before.
         */
        Untrusted: {
            name: string;
            question: string;
            text: string;
            digest: string;
        };
        /** Uploaded */
        Uploaded: {
            id: string;
            name: string;
            media_type: string;
            size: number;
        };
        /**
         * Usage
         * @description Tokens and money. ``None`` means unknown, which is not zero.
         */
        Usage: {
            /** @default null */
            input_tokens?: number | null;
            /** @default null */
            output_tokens?: number | null;
            /** @default null */
            cached_tokens?: number | null;
            /** @default null */
            reasoning_tokens?: number | null;
            /** @default null */
            cost_usd?: number | null;
        };
        /**
         * WorkspaceFile
         * @description ``kind``: file | folder | link | other. ``path`` begins at the workspace.
         */
        WorkspaceFile: {
            path: string;
            name: string;
            kind: string;
            size: number;
            modified_at: number;
        };
        /**
         * WorkspaceFiles
         * @description ``is_cut``: there are more than these.
         */
        WorkspaceFiles: {
            path: string;
            files: components["schemas"]["WorkspaceFile"][];
            is_cut: boolean;
        };
        /**
         * WorkspaceText
         * @description ``is_cut``: the text goes on; ``size`` is that of the whole file, in bytes.
         */
        WorkspaceText: {
            path: string;
            text: string;
            size: number;
            modified_at: number;
            is_cut: boolean;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
