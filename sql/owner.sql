-- Roles and schema; run first, in the transaction of the migration, as the migrating role.
--
-- Everything is owned by the NOLOGIN role pgevict_owner, so that functions that run with their owner's rights have
-- the rights on the log and no others. A role that may not create roles goes on and owns everything itself; it gets
-- a notice. Ends with the owner as the current role, for this transaction only.
--
-- Roles belong to the whole cluster, and a lock of one database does not keep others out: another migration may
-- create the same role at the same moment, so that is not an error.
do $do$
declare
  -- role, the roles it is a member of
  wanted constant text[] := array[
    ['pgevict_owner', ''],
    ['pgevict_emitter', ''],
    ['pgevict_reader', ''],
    ['pgevict_instance', 'pgevict_reader'],
    ['pgevict_admin', 'pgevict_emitter'],
    ['pgevict_admin', 'pgevict_instance']];
  member text;
  parent text;
  owner text;
  before constant text := current_setting('role');
begin
  for n in 1 .. array_length(wanted, 1) loop
    member := wanted[n][1];
    parent := wanted[n][2];
    begin
      if not exists (select from pg_catalog.pg_roles where rolname = member) then
        execute pg_catalog.format('create role %I nologin', member);
      end if;
      if parent <> '' and not pg_catalog.pg_has_role(member, parent, 'member') then
        execute pg_catalog.format('grant %I to %I', parent, member);
      end if;
    exception
      when duplicate_object or unique_violation then
        null;
      when insufficient_privilege or undefined_object then
        raise notice 'pgevict: % may not create or grant the role %; grant its rights yourself (see --print)',
          current_user, member;
    end;
  end loop;

  select pg_catalog.pg_get_userbyid(nspowner) into owner
  from pg_catalog.pg_namespace where nspname = 'pgevict';

  if owner is null then
    owner := current_user;
    if exists (select from pg_catalog.pg_roles where rolname = 'pgevict_owner') then
      begin
        if not pg_catalog.pg_has_role('pgevict_owner', 'member') then
          execute pg_catalog.format('grant pgevict_owner to %I', current_user);
        end if;
        set local role pgevict_owner;
        owner := 'pgevict_owner';
        perform pg_catalog.set_config('role', before, true);
      exception
        when insufficient_privilege then
          -- From 16 on, who created a role may grant it but is not a member who may take it.
          begin
            execute pg_catalog.format('grant pgevict_owner to %I', current_user);
            set local role pgevict_owner;
            owner := 'pgevict_owner';
            perform pg_catalog.set_config('role', before, true);
          exception
            when insufficient_privilege then
              raise notice 'pgevict: % is no member of pgevict_owner and becomes the owner itself', current_user;
          end;
      end;
    end if;
    execute pg_catalog.format('create schema pgevict authorization %I', owner);
  end if;

  if owner <> current_user then
    begin
      execute pg_catalog.format('set local role %I', owner);
    exception
      when insufficient_privilege then
        raise exception 'schema pgevict belongs to the role %, and % is no member of it', owner, current_user
          using errcode = 'insufficient_privilege',
                hint = pg_catalog.format('Run migrate as a member of it, or: grant %I to %I;', owner, current_user);
    end;
  end if;
end
$do$;
