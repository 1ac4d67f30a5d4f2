-- pgevict.watch_mark() returns trigger
--
-- Tells the row triggers of a watch which rows its statement triggers tell of anyway. Runs before and after each
-- statement that names the watched table (argument `through`) or one of its partitions (`direct`); the other argument
-- is the watch's token (watch_token()). Writes nothing but two settings of the transaction:
--   pgevict.through_TOKEN  a character for each trigger depth: 1 while a statement through the watched table runs at
--                          that depth, else 0. The row triggers stay silent where they find 1 at their own depth.
--   pgevict.direct_TOKEN   a character for each statement under way that names a partition. While there is one, each 1
--                          is a 2, so that no row trigger is silent: a statement may change the parent in one WITH and
--                          a partition in another, or call a function that does.
--
-- Whatever goes wrong has to end in an event too many, never in one too few. So what is set is taken back by the
-- statement that set it, by the rollback of its savepoint, or by the end of the transaction, whichever comes first. The
-- trigger after the statement may run at a lower depth than the one before it: what a cascade changes fires it together
-- with the triggers of the statement that caused the cascade. Nothing deeper is under way by then, so it clears all
-- depths from its own on.
--
-- Settings are text that anybody may set, so nothing is cast: a write must not fail over them.
create or replace function pgevict.watch_mark() returns trigger
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Where the rows of this statement are changed: outside of this function.
  depth constant integer := pg_trigger_depth() - 1;
  marks text := coalesce(current_setting('pgevict.through_' || tg_argv[1], true), '');
  named text := coalesce(current_setting('pgevict.direct_' || tg_argv[1], true), '');
begin
  if tg_argv[0] = 'direct' then
    if tg_when = 'BEFORE' then
      named := named || 'x';
      marks := translate(marks, '1', '2');
    else
      named := substr(named, 2);
      if named = '' then
        marks := translate(marks, '2', '1');
      end if;
    end if;
    perform set_config('pgevict.direct_' || tg_argv[1], named, true);
  elsif tg_when = 'BEFORE' then
    marks := rpad(left(marks, depth), depth, '0') || case when named = '' then '1' else '2' end;
  else
    marks := left(marks, depth);
  end if;
  perform set_config('pgevict.through_' || tg_argv[1], marks, true);
  return null;
end
$$;
