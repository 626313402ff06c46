// Types of the console for `tsc --checkJs`. No part of the console itself.

type VChild = VNode | string | number | boolean | null | undefined | VChild[];
type VProps = Record<string, any> & { key?: string | number; hook?: (element: any) => void };
interface VNode { tag: string; props: VProps; children: (VNode | string)[]; key?: string | number; hook?: (element: any) => void }

interface Route { screen: string; path: string[]; query: URLSearchParams }

interface ScreenView {
  title: string;
  view(): VChild;
  state(): string;
  rows?(): number | undefined;
  topics?(): string[];
  frame?(event: string, data: any): void;
  resync?(): void;
  /** Takes a changed route of the same screen; false: the screen is opened anew. */
  route?(route: Route): boolean;
  keys?: Record<string, (event: KeyboardEvent) => void>;
  /** Entries of the copy menu. */
  copy?(): CopyEntry[];
  close?(): void;
}

interface CopyEntry { label: string; text: string | (() => string | Promise<string>); }

interface Resource<T> {
  data: T | undefined;
  error: any;
  state: "loading" | "ready" | "stale" | "error";
  reload(): Promise<void>;
  close(): void;
}

interface Session {
  csrfToken?: string; operator: string; role: string; expiresAt?: string;
  server: { name: string; version: string; content: string; features: string[] };
}

interface TaskHead {
  id: string; agent: string; tenant: string; caller: string; context: string; title: string | null; state: string;
  opened: string; updated: string; ended: string | null; entries: number; turns: number; version?: string;
  waiting: string | null; parent: { id: string; agent: string } | null; children: number; reason: string | null;
  usage: { calls?: number; inputTokens?: number; outputTokens?: number; estimated?: boolean; cost?: number | null } | null;
  trace: string | null; webhooks: { active: number; failed: number } | null;
}

interface Entry { seq: number; time: string; kind: string; summary: string; body: any }

interface Span { from: number; to: number | null; seq: number[]; state?: string; kind?: string; attempt?: number; count?: number }
interface Lane { lane: string; label: string; detail?: string; child?: { id: string; origin?: string }; spans: Span[] }
interface Spans {
  lanes: Lane[]; states: { state: string; from: number; by?: string; seq?: number }[]; gaps: { from: number; to: number }[];
  start: string; entries: number; merged: boolean;
}

interface Window { trustedTypes?: unknown }
